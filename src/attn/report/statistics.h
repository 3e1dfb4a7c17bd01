// What a tensor holds, in a few numbers.
#pragma once

#include <cstddef>
#include <optional>

#include "attn/tensor/tensor.h"

namespace attn {

/// numpy.nanmin, nanmax and nanmean; the mean is summed pairwise in long double.
struct Statistics {
  struct Range {
    Tensor minimum, maximum;  ///< 0-d, of the tensor's own dtype
    double mean = 0;          ///< of booleans: the share that is true
  };
  std::size_t nan = 0;         ///< elements that are NaN
  std::size_t infinite = 0;    ///< elements that are infinite, of either sign
  std::optional<Range> range;  ///< of all but NaN; none where nothing is left
};

Statistics statistics_of(const Tensor& tensor);

}  // namespace attn
