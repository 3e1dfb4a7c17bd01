#include "attn/report/head_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace attn {

HeadSummarizer::HeadSummarizer(const std::vector<std::int64_t>& own_keys,
                               const std::vector<std::size_t>& keys)
    : own_keys_(own_keys), keys_(keys) {}

void HeadSummarizer::add(const HeatRow& row, std::size_t i) {
  double sum = 0, largest = 0;
  bool has_nan = false, negative = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    has_nan |= row.kinds[j] == CellKind::nan;
    negative |= row.values[j] < 0;
    sum += row.values[j];
    largest = std::max(largest, std::abs(row.values[j]));
  }
  negative_ |= negative;
  sum_.largest = std::max(sum_.largest, largest);
  if (has_nan || negative_ || !(sum > 0) || !std::isfinite(sum)) return;
  const std::int64_t own = own_keys_[i];
  ++rows_;
  weight_sum_ += sum;
  double entropy = 0, distance = 0;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double weight = row.values[j];
    if (!(weight > 0)) continue;
    const auto key = static_cast<std::int64_t>(keys_[j]);
    entropy -= weight * std::log(weight);
    distance += weight * static_cast<double>(std::abs(own - key));
    if (key == 0) sum_.first += weight;
    if (key + 1 == own) sum_.previous += weight;
  }
  sum_.entropy += entropy;
  sum_.distance += distance;
}

HeadSummary HeadSummarizer::summary(bool is_weights) const {
  if (!is_weights || negative_ || rows_ == 0) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    return {kNone, kNone, kNone, kNone, sum_.largest};
  }
  return {sum_.entropy / static_cast<double>(rows_), sum_.first / weight_sum_,
          sum_.distance / weight_sum_, sum_.previous / weight_sum_, sum_.largest};
}

}  // namespace attn
