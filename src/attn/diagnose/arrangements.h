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

/// Those that explain at least 99 % of the result.
std::vector<Arrangement> matching_arrangements(const Evidence& evidence);

}  // namespace attn
