// Scores and weights reduced along one of their axes.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/team.h"
#include "attn/core/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

// The argument is (B, H, L, S), of floats. Sums are in doubles and rounded once. An empty axis sums
// to 0.
Tensor mean_over_heads(const Tensor& weights);  ///< (B, L, S)
/// (B, H, S). With a team, each member passes the weights of its rows, and member 0 receives the
/// sums over all rows, with the bytes that one process computes; the others receive partial ones.
Tensor sum_over_queries(const Tensor& weights, Team* team = nullptr);

/// An output that is one number for each row of a score matrix. With the fused kernels it is
/// computed from finished rows, so that the matrix is never kept.
struct RowReduction {
  Output output, of;
};
inline constexpr std::array<RowReduction, 2> kRowReductions = {{
    {Output::row_max, Output::masked_scores},
    {Output::entropy, Output::weights},
}};

/// The largest element; NaN if there is one, -inf for an empty row.
template <class T>
T row_max(const T* row, std::size_t count) {
  T max = -std::numeric_limits<T>::infinity();
  bool has_nan = false;
  for (std::size_t j = 0; j < count; ++j) {
    has_nan |= row[j] != row[j];
    max = row[j] > max ? row[j] : max;
  }
  return has_nan ? std::numeric_limits<T>::quiet_NaN() : max;
}

/// -sum(w log w), with 0 log 0 = 0. For a softmax this equals logsumexp minus the expected visible
/// score, because -log w = logsumexp - score; computed from the weights, no large numbers cancel. 0
/// if all weights are 0.
template <class T>
T entropy(const T* weights, std::size_t count) {
  double sum = 0;
  for (std::size_t j = 0; j < count; ++j)
    if (const auto w = static_cast<double>(weights[j]); w != 0) sum -= w * std::log(w);
  return static_cast<T>(sum);
}

/// Computes one of kRowReductions for one row.
template <class T>
T reduce_row(Output output, const T* row, std::size_t count) {
  if (output == Output::row_max) return row_max(row, count);
  if (output == Output::entropy) return entropy(row, count);
  throw Error(ErrorKind::internal, "not a reduction of rows");
}

/// (B, H, L, S) -> (B, H, L).
Tensor reduce_rows(Output output, const Tensor& matrix);

}  // namespace attn
