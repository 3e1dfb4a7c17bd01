// Statistics of attention heads: one number for each head, from the weights of its queries. The
// numbers of each query are outputs of a job (attention/row_statistics.h); docs/statistics.md has
// the formulas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attn/attention/row_statistics.h"
#include "attn/problem/query_positions.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The statistics of heads (RowStatistic::summary), and weight_sum, that can be computed from
/// weights with or without positions and token ids.
StatisticSet statistics_with(bool positions, bool token_ids);

/// The sums from which the statistics of a head follow. They can be added up over sequences.
class HeadSums {
 public:
  using Numbers = std::array<double, kRowStatisticCount>;  ///< in the order of kRowStatistics

  /// Adds a query, unless its weight_sum is 0.
  void add(const Numbers& numbers);
  void add(const HeadSums& more);

  std::size_t queries() const { return queries_; }  ///< those that have a weight
  /// NaN if there are no queries. `statistic` is a row of kRowStatistics that has a summary.
  double value(const RowStatistic& statistic) const;

 private:
  std::size_t queries_ = 0;
  Numbers sums_{};
};

/// Errors: data, for negative numbers, which are no weights of this query.
void require_no_negative(std::span<const double> weights, std::size_t query);

/// The numbers of a row of weights; 0 for statistics that are not in `wanted`.
HeadSums::Numbers numbers_of_row(std::span<const double> weights, const RowQuery& query,
                                 const StatisticSet& wanted);

/// What the statistics of stored weights refer to.
struct SequenceTokens {
  const QueryPositions* positions = nullptr;  ///< nullptr: unknown
  std::size_t item = 0;                       ///< of the batch
  const std::int64_t* token_ids = nullptr;    ///< of the keys; nullptr: unknown
};

/// The sums of a head with `weights` (L, S); 0 for those not in statistics_with(). NaN makes all
/// sums NaN. Errors: data, for negative weights.
HeadSums sums_of_weights(const Tensor& weights, const SequenceTokens& tokens);

/// How alike the weights of heads are, over the queries of one or more sequences.
class HeadSimilarity {
 public:
  explicit HeadSimilarity(std::size_t heads);

  std::size_t heads() const { return heads_; }
  /// `weights` is (heads, L, S). Errors: data, for negative weights.
  void add(const Tensor& weights);
  /// The cosine similarity of the weights as vectors over all queries and keys. NaN if one is 0.
  double cosine(std::size_t a, std::size_t b) const;
  /// The mean Jensen-Shannon divergence of the weights, divided by their sums, in nats, over the
  /// queries with weights in both heads. NaN if there are none.
  double divergence(std::size_t a, std::size_t b) const;

 private:
  struct Pair {
    double product = 0, divergence = 0;
    std::size_t queries = 0;
  };
  Pair& pair(std::size_t a, std::size_t b) { return pairs_[a * heads_ + b]; }
  const Pair& pair(std::size_t a, std::size_t b) const { return pairs_[a * heads_ + b]; }

  std::size_t heads_;
  std::vector<Pair> pairs_;  ///< (heads, heads): b <= a only
};

}  // namespace attn
