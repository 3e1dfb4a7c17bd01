// Results whose elements are those of the job in another order, or multiplied.
#pragma once

#include <string>
#include <vector>

#include "attn/diagnose/evidence.h"

namespace attn {

struct Arrangement {
  std::string id, kernel;  ///< "heads.permuted", "heads in the order 1, 0, 3, 2"
  Fit fit;
};

/// Those that explain at least 99 % of the result. Of an excerpt with some heads, no arrangements
/// of heads; of one with some rows, none of rows.
std::vector<Arrangement> matching_arrangements(const Evidence& evidence);

}  // namespace attn
