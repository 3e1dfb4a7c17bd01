// Scores and weights reduced along one of their axes.
#pragma once

#include <cstddef>

#include "attn/attention/row_statistics.h"
#include "attn/problem/inputs.h"
#include "attn/problem/query_positions.h"
#include "attn/tensor/tensor.h"

namespace attn {

// The argument is (B, H, L, S), of floats. Sums are in doubles and rounded once. An empty axis sums
// to 0.
Tensor mean_over_heads(const Tensor& weights);   ///< (B, L, S)
Tensor sum_over_queries(const Tensor& weights);  ///< (B, H, S)

/// The queries in.rows of all heads of all batch items.
class RowQueries {
 public:
  /// `in` must outlive this object.
  explicit RowQueries(const Inputs& in) : in_(in), positions_(in) {}

  /// `row` is a flat index of (B, H, rows).
  RowQuery of(std::size_t row) const;

 private:
  const Inputs& in_;
  QueryPositions positions_;
};

/// (B, H, L, S) -> (B, H, L), rounded to the dtype of the matrix.
Tensor reduce_rows(const RowStatistic& statistic, const Tensor& matrix, const RowQueries& queries);

}  // namespace attn
