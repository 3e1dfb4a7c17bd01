// Statistics of attention heads: one number for each head, from the weights of its queries. The
// numbers of each query are outputs of a job (core/reductions.h); docs/statistics.md has the
// formulas.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attn/core/output_table.h"
#include "attn/core/query_places.h"
#include "attn/core/reductions.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// How the numbers of the queries become one number of the head.
enum class Summary {
  mean,   ///< their mean over the queries with a weight
  share,  ///< their sum divided by the sum of all weights
};

struct StatisticRow {
  Output output;  ///< names and describes the statistic
  Summary summary;
  bool by_place;  ///< whether it depends on the places of the queries
};
inline constexpr auto kStatistics = std::to_array<StatisticRow>({
    {Output::entropy, Summary::mean, false},
    {Output::effective_keys, Summary::mean, false},
    {Output::keys_95, Summary::mean, false},
    {Output::distance, Summary::share, true},
    {Output::first_key_weight, Summary::share, true},
    {Output::previous_token_weight, Summary::share, true},
    {Output::duplicate_token_weight, Summary::share, true},
    {Output::induction_weight, Summary::share, true},
});
using StatisticSet = std::bitset<kStatistics.size()>;

/// The statistics that can be computed from weights with or without places and token ids.
StatisticSet statistics_with(bool places, bool token_ids);

/// The sums from which the statistics of a head follow. They can be added up over sequences.
class HeadSums {
 public:
  using Numbers = std::array<double, kStatistics.size()>;

  /// Adds a query, unless it has no weight. `numbers` are in the order of kStatistics.
  void add(double weight_sum, const Numbers& numbers);
  void add(const HeadSums& more);

  std::size_t queries() const { return queries_; }  ///< those that have a weight
  /// NaN if there are no queries.
  double value(std::size_t statistic) const;
  double value(Output statistic) const;

 private:
  std::size_t queries_ = 0;
  double weight_sum_ = 0;
  Numbers sums_{};
};

/// The numbers of a row of weights; 0 for statistics that are not in `wanted`.
HeadSums::Numbers numbers_of_row(std::span<const double> weights, const RowQuery& query,
                                 const StatisticSet& wanted);

/// What the statistics of stored weights refer to.
struct SequenceTokens {
  const QueryPlaces* places = nullptr;      ///< nullptr: unknown
  std::size_t item = 0;                     ///< of the batch
  const std::int64_t* token_ids = nullptr;  ///< of the keys; nullptr: unknown
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
  /// The mean Jensen-Shannon divergence, in nats, over the queries with weights in both heads. NaN
  /// if there are none.
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
