// Scores and weights reduced along one of their axes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attn/base/team.h"
#include "attn/core/inputs.h"
#include "attn/core/output_table.h"
#include "attn/core/query_places.h"
#include "attn/tensor/tensor.h"

namespace attn {

// The argument is (B, H, L, S), of floats. Sums are in doubles and rounded once. An empty axis sums
// to 0.
Tensor mean_over_heads(const Tensor& weights);  ///< (B, L, S)
/// (B, H, S). With a team, each member passes the weights of its rows, and member 0 receives the
/// sums over all rows, with the bytes that one process computes; the others receive partial ones.
Tensor sum_over_queries(const Tensor& weights, Team* team = nullptr);

/// A query, as the statistics of its weights need to know it.
struct RowQuery {
  QueryPlace place = {};
  std::size_t keys = 0;                     ///< number of keys before the appended ones
  const std::int64_t* token_ids = nullptr;  ///< (keys); nullptr: not given
};

/// The queries in.rows of all heads of all batch items.
class RowQueries {
 public:
  /// `in` must outlive this object.
  explicit RowQueries(const Inputs& in) : in_(in), places_(in) {}

  /// `row` is a flat index of (B, H, rows).
  RowQuery of(std::size_t row) const;

 private:
  const Inputs& in_;
  QueryPlaces places_;
};

/// An output that is one number for each row of a score matrix. With the fused kernels it is
/// computed from finished rows, so that the matrix is never kept. docs/statistics.md has the
/// formulas.
struct RowReduction {
  Output output, of;
};
inline constexpr auto kRowReductions = std::to_array<RowReduction>({
    {Output::row_max, Output::masked_scores},
    {Output::weight_sum, Output::weights},
    {Output::entropy, Output::weights},
    {Output::effective_keys, Output::weights},
    {Output::keys_95, Output::weights},
    {Output::distance, Output::weights},
    {Output::first_key_weight, Output::weights},
    {Output::previous_token_weight, Output::weights},
    {Output::duplicate_token_weight, Output::weights},
    {Output::induction_weight, Output::weights},
});

constexpr bool is_row_reduction(Output output) {
  for (const RowReduction& reduction : kRowReductions)
    if (reduction.output == output) return true;
  return false;
}

/// Computes one of kRowReductions for one row of `count` elements. T is float or double; sums are
/// in doubles.
template <class T>
T reduce_row(Output output, const T* row, std::size_t count, const RowQuery& query);

/// (B, H, L, S) -> (B, H, L).
Tensor reduce_rows(Output output, const Tensor& matrix, const RowQueries& queries);

}  // namespace attn
