// The table of row statistics: outputs that are one number for each row of scores or weights. The
// outputs of a job, `attn stats`, pages and the summary of a batch take them from here.
// docs/statistics.md has the formulas.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "attn/problem/output_table.h"
#include "attn/problem/query_positions.h"

namespace attn {

/// A query, as the statistics of its row need to know it.
struct RowQuery {
  QueryPosition position = {};
  std::size_t keys = 0;                     ///< number of keys before the appended ones
  const std::int64_t* token_ids = nullptr;  ///< (keys); nullptr: not given
};

/// The definition of a statistic. Sums are in doubles, and the number is not rounded.
struct RowFormula {
  double (*of_floats)(std::span<const float> row, const RowQuery& query);
  double (*of_doubles)(std::span<const double> row, const RowQuery& query);

  double operator()(std::span<const float> row, const RowQuery& query) const {
    return of_floats(row, query);
  }
  double operator()(std::span<const double> row, const RowQuery& query) const {
    return of_doubles(row, query);
  }
};

/// How the numbers of the queries become one number of a head.
enum class Summary {
  none,   ///< they do not
  mean,   ///< their mean over the queries with a weight
  share,  ///< their sum divided by the sum of all weights
};

struct RowStatistic {
  Output output;  ///< names and describes it; row_of(output).reduces is the matrix
  RowFormula formula;
  Summary summary = Summary::none;  ///< `attn stats` prints those that have one
  bool by_position = false;         ///< whether it depends on the position of the query
  int operations = 2;               ///< for each element of the row, as counted in Plan::flops
  std::string_view page_name = {}, page_title = {};  ///< on pages, which show those that have both
  std::string_view page_note = {};                   ///< shown with the heads that it orders
  bool in_batch_summary = false;  ///< `attn batch --summary` has its mean over all rows

  constexpr bool is_on_page() const { return !page_name.empty(); }
};

inline constexpr std::size_t kRowStatisticCount = [] {
  std::size_t count = 0;
  for (const OutputRow& row : kOutputs) count += row.reduces ? 1 : 0;
  return count;
}();

/// In the order of the enumerators.
extern const std::array<RowStatistic, kRowStatisticCount> kRowStatistics;

/// The index in kRowStatistics of an output that is one of them.
constexpr std::size_t statistic_index(Output output) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < index_of(output); ++i) index += kOutputs[i].reduces ? 1 : 0;
  return index;
}
inline constexpr std::size_t kWeightSum = statistic_index(Output::weight_sum);
inline const RowStatistic& statistic_of(Output output) {
  return kRowStatistics[statistic_index(output)];
}

/// Some of kRowStatistics.
using StatisticSet = std::bitset<kRowStatisticCount>;

}  // namespace attn
