// Mistakes that explain why a result differs from its reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/core/axis.h"
#include "attn/report/comparison.h"

namespace attn {

/// Finds out whether A is a multiple of B, or agrees with B after swapping two axes or reshaping.
/// `letters`: of the axes of B; empty if unknown. `width`: D; 0 if unknown.
std::vector<std::string> compare_hints(const Compared& compared, const Comparison& found,
                                       const AxisList& letters, std::size_t width);

}  // namespace attn
