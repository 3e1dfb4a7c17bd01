#include "attn/report/head_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace {

/// Those that a page shows.
StatisticSet shown_statistics(bool places) {
  StatisticSet shown = statistics_with(places, false);
  for (std::size_t k = 0; k < kStatistics.size(); ++k)
    if (const Output output = kStatistics[k].output;
        output == Output::effective_keys || output == Output::keys_95)
      shown.reset(k);
  return shown;
}

}  // namespace

HeadSummarizer::HeadSummarizer(const HeatCells& cells, const PlacesOfMatrices& places,
                               std::size_t matrix)
    : cells_(cells),
      places_(places),
      item_(places.item_of(matrix)),
      weights_(cells.values.shape()[2]) {}

void HeadSummarizer::add(const HeatRow& row, std::size_t i) {
  double sum = 0;
  bool has_nan = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    has_nan |= row.kinds[j] == CellKind::nan;
    negative_ |= row.values[j] < 0;
    sum += row.values[j];
    largest_ = std::max(largest_, std::abs(row.values[j]));
    weights_[cells_.columns[j]] = row.values[j];
  }
  if (has_nan || negative_ || !(sum > 0) || !std::isfinite(sum)) return;
  RowQuery query;
  if (const auto& places = places_.places)
    query = {.place = places->of(item_, cells_.rows[i]), .keys = places->keys()};
  sums_.add(sum, numbers_of_row(weights_, query, shown_statistics(places_.places.has_value())));
}

HeadSummary HeadSummarizer::summary(bool is_weights) const {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const bool is_known = is_weights && !negative_;
  const auto value = [&](Output statistic, bool known) {
    return known ? sums_.value(statistic) : kNone;
  };
  const bool has_places = is_known && places_.places.has_value();
  return {value(Output::entropy, is_known), value(Output::first_key_weight, has_places),
          value(Output::distance, has_places), value(Output::previous_token_weight, has_places),
          largest_};
}

}  // namespace attn
