// Statistics of a head for sorting and filtering heads on a page.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/draw/heat_map.h"
#include "attn/stats/head_statistics.h"

namespace attn {

/// The statistics of docs/statistics.md over the drawn queries and keys, without queries whose
/// weights have no positive sum.
struct HeadSummary {
  /// Of kRowStatistics, those that a page shows. NaN if no query is left, or if a value is
  /// negative or NaN; those that depend on the positions of queries also if these are unknown.
  HeadSums::Numbers statistics = {};
  bool has_statistics = false;    ///< apart from NaN among the values
  double largest = 0;             ///< the largest magnitude of all values
  double largest_of_several = 0;  ///< without rows of one value other than 0, if there are others
};

/// Collects the rows of a head.
class HeadSummarizer {
 public:
  /// Both must outlive this object.
  HeadSummarizer(const HeatCells& cells, const PositionsOfMatrices& positions, std::size_t matrix);

  void add(const HeatRow& row, std::size_t i);  ///< of the drawn query i
  HeadSummary summary(bool is_weights) const;   ///< otherwise only `largest` is a number

 private:
  const HeatCells& cells_;
  const PositionsOfMatrices& positions_;
  std::size_t item_;
  std::vector<double> weights_;  ///< of all keys, 0 for those that are not drawn
  bool negative_ = false, nan_ = false;
  double largest_ = 0, largest_of_several_ = 0;
  HeadSums sums_;
};

}  // namespace attn
