// Reports of comparisons.
#pragma once

#include <optional>
#include <string>

#include "attn/report/comparison.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The inputs of a comparison, for comparison_text().
struct Compared {
  std::string name;  ///< printed unchanged; may be ""
  Tensor a, b;
  std::optional<Tensor> bounds;
  std::string bound_of;  ///< what the bounds are for: "f16"
};

/// A report: shapes and dtypes, the number of elements that differ, the extremes with their indices
/// and values, and a histogram of |a - b|.
std::string comparison_text(const Compared& compared, const Comparison& comparison);

}  // namespace attn
