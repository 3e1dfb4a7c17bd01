#include "attn/draw/head_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace {

/// Those that a page shows, and weight_sum.
StatisticSet shown_statistics(bool positions) {
  StatisticSet shown = statistics_with(positions, false);
  for (std::size_t k = 0; k < kRowStatistics.size(); ++k)
    if (k != kWeightSum && !kRowStatistics[k].is_on_page()) shown.reset(k);
  return shown;
}

}  // namespace

HeadSummarizer::HeadSummarizer(const HeatCells& cells, const PositionsOfMatrices& positions,
                               std::size_t matrix)
    : cells_(cells),
      positions_(positions),
      item_(positions.item_of(matrix)),
      weights_(cells.values.shape()[2]) {}

void HeadSummarizer::add(const HeatRow& row, std::size_t i) {
  bool has_nan = false;
  std::size_t count = 0;  // of values other than 0
  double largest = 0;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    has_nan |= row.kinds[j] == CellKind::nan;
    negative_ |= row.values[j] < 0;
    count += row.values[j] != 0 ? 1 : 0;
    largest = std::max(largest, std::abs(row.values[j]));
    weights_[cells_.columns[j]] = row.values[j];
  }
  largest_ = std::max(largest_, largest);
  if (count > 1) largest_of_several_ = std::max(largest_of_several_, largest);
  nan_ |= has_nan;
  if (has_nan || negative_) return;
  RowQuery query;
  if (const auto& positions = positions_.queries)
    query = {.position = positions->of(item_, cells_.rows[i]), .keys = positions->keys()};
  const HeadSums::Numbers numbers =
      numbers_of_row(weights_, query, shown_statistics(positions_.queries.has_value()));
  if (numbers[kWeightSum] > 0 && std::isfinite(numbers[kWeightSum])) sums_.add(numbers);
}

HeadSummary HeadSummarizer::summary(bool is_weights) const {
  HeadSummary summary{.largest = largest_, .largest_of_several = largest_of_several_};
  if (largest_of_several_ == 0) summary.largest_of_several = largest_;
  summary.statistics.fill(std::numeric_limits<double>::quiet_NaN());
  const StatisticSet known = shown_statistics(positions_.queries.has_value());
  for (std::size_t k = 0; is_weights && !negative_ && k < kRowStatistics.size(); ++k)
    if (known.test(k)) summary.statistics[k] = sums_.value(kRowStatistics[k]);
  summary.has_statistics = std::any_of(summary.statistics.begin(), summary.statistics.end(),
                                       [](double number) { return !std::isnan(number); });
  if (nan_) summary.statistics.fill(std::numeric_limits<double>::quiet_NaN());
  return summary;
}

}  // namespace attn
