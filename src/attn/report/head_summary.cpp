#include "attn/report/head_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {

HeadSummarizer::HeadSummarizer(const std::vector<std::size_t>& queries,
                               const std::vector<std::size_t>& keys, std::size_t L, std::size_t S)
    : queries_(queries), keys_(keys), offset_(S >= L ? S - L : 0) {}

void HeadSummarizer::add(const HeatRow& row, std::size_t i) {
  double sum = 0;
  bool has_nan = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    has_nan = has_nan || row.kinds[j] == CellKind::nan;
    negative_ = negative_ || row.values[j] < 0;
    sum += row.values[j];
    sum_.largest = std::max(sum_.largest, std::abs(row.values[j]));
  }
  if (has_nan || negative_ || !(sum > 0) || !std::isfinite(sum)) return;
  const std::size_t position = queries_[i] + offset_;
  ++rows_;
  if (position > 0) ++rows_with_previous_;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double weight = row.values[j] / sum;
    if (!(weight > 0)) continue;
    const std::size_t key = keys_[j];
    sum_.entropy -= weight * std::log(weight);
    sum_.distance +=
        weight * static_cast<double>(std::max(position, key) - std::min(position, key));
    if (key == 0) sum_.first += weight;
    if (key + 1 == position) sum_.previous += weight;
  }
}

HeadSummary HeadSummarizer::summary() const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto mean = [&](double sum, std::size_t count) {
    return negative_ || count == 0 ? kNan : sum / static_cast<double>(count);
  };
  return {mean(sum_.entropy, rows_), mean(sum_.first, rows_), mean(sum_.distance, rows_),
          mean(sum_.previous, rows_with_previous_), sum_.largest};
}

}  // namespace attn
