// Mistakes that explain why a result differs from its reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/metrics/comparison.h"
#include "attn/problem/axis.h"

namespace attn {

/// What may explain that a result differs.
struct Hint {
  std::string text;
  bool explains_all = false;  ///< A, changed as the text says, agrees
};

/// "if its axes 1 and 2 (H and L) are swapped", "if reshaped to (2, 5, 12)": how A has to be
/// arranged to agree with B, of which heads may be an axis or concatenated. "" if it does not
/// agree. `letters` as below. Large tensors are compared by a sample.
std::string agreeing_arrangement(const Compared& compared, const AxisList& letters);

/// Finds out whether A is a multiple of B, or agrees with B after swapping two axes or reshaping.
/// `letters`: of the axes of B; empty if unknown. `width`: D; 0 if unknown.
std::vector<Hint> compare_hints(const Compared& compared, const Comparison& found,
                                const AxisList& letters, std::size_t width);

}  // namespace attn
