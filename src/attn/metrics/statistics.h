// The extremes and the mean of a tensor.
#pragma once

#include <cstddef>
#include <optional>

#include "attn/tensor/tensor.h"

namespace attn {

/// As numpy.nanmin, nanmax and nanmean; the sum is pairwise in long double.
struct Statistics {
  struct Range {
    Tensor minimum, maximum;  ///< 0-d, of the tensor's dtype
    double mean = 0;          ///< for booleans the fraction that is true
  };
  std::size_t nan = 0;         ///< NaN elements
  std::size_t infinite = 0;    ///< infinite elements of either sign
  std::optional<Range> range;  ///< of all elements but NaN, if any
};

Statistics statistics_of(const Tensor& tensor);

}  // namespace attn
