// The time that a worker needs for an item.
#pragma once

#include <algorithm>
#include <cmath>

namespace attn {

/// The mean duration of items, in which recent ones have more weight.
class RecentMean {
 public:
  void add(double seconds) {
    constexpr double kWeight = 0.25;  // of the last item
    mean_ = is_known() ? (1 - kWeight) * mean_ + kWeight * seconds : seconds;
  }

  bool is_known() const { return mean_ >= 0; }

  /// The number of items that take this long, rounded up. The mean is known.
  double items_in(double seconds) const { return std::ceil(seconds / std::max(mean_, 1e-6)); }

 private:
  double mean_ = -1;  ///< seconds; negative: unknown
};

}  // namespace attn
