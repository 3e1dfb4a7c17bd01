// Where a result is wrong.
#pragma once

#include <string>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/diagnose/evidence.h"

namespace attn {

/// One line for each of: batch items, heads, rows, columns, growth with position, rows with few
/// visible keys, a factor of each row. `in`: the checked inputs; nullptr if unknown.
std::vector<std::string> pattern_of(const Evidence& evidence, const Inputs* in);

/// "3", "0 to 7", "every 16th from 240 to 400", "1, 3, 6", "11, ..., 63 (10 in all)".
std::string ranges_text(const std::vector<std::size_t>& numbers);

}  // namespace attn
