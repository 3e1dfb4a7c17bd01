// Linear projections of queries, keys, values and the output; splitting and joining head axes; and
// conversion of results to the layout of the user's tensors: (L, D) for 2-D queries, a batch or
// head axis only if the inputs have one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/core/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (B, N, heads * D) -> (B, heads, N, D): head h has the columns h * D to h * D + D - 1.
Tensor split_heads(const Tensor& packed, std::size_t heads);

/// (B, heads, N, D) -> (B, N, heads * D); the inverse of split_heads().
Tensor side_by_side(const Tensor& split);

/// (A, B, C, D) -> (A, C, B, D).
Tensor swap_middle_axes(const Tensor& tensor);

/// (A, B, C) -> (B, A, C).
Tensor swap_first_axes(const Tensor& tensor);

/// The rows with these indices: (..., N, D) -> (..., rows.size(), D).
Tensor take_rows(const Tensor& tensor, const std::vector<std::size_t>& rows);

/// (B, G, P, D) and (B, G, N, D) -> (B, G, P + N, D). If only one is floating-point, the other is
/// converted.
Tensor append_rows(const Tensor& before, const Tensor& behind);

/// (1, ...) -> (count, ...).
Tensor repeated(const Tensor& tensor, std::size_t count);

/// x W + b: x (B, N, M), W (M, P), b (P) -> (B, N, P). W defaults to the identity, b
/// to zero. Integers stay exact; Error(data) that names `stage` if one does not fit int64.
Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               Output stage);

/// The output that contains the same numbers: head_context for context, which is head_context with
/// permuted axes.
constexpr Output same_numbers_as(Output output) {
  return output == Output::context ? Output::head_context : output;
}

/// same_numbers_as(output), with all axes as core/formula.h computes it, in the user's layout.
Tensor to_user_layout(Output output, const Tensor& full, const Inputs& in);

/// The shape that to_user_layout() returns for `full`, the shape with all axes.
Shape to_user_shape(Output output, const Shape& full, const Inputs& in);

/// The axes of the output in the user's layout.
AxisList user_axes(Output output, const Inputs& in);

/// The axes of a given tensor; empty if its row of core/input_table.h does not tell. Without heads,
/// a mask or a cache has no axis of heads.
AxisList user_axes(Input input, const Shape& shape, const Options& options, bool with_heads);

/// W_Q_heads, W_K_heads or W_V_heads: the columns (M, heads * D) of the given weights as (heads, M,
/// D), in the dtype in which they were given.
Tensor weight_heads(Output output, const TensorMap& tensors, const Inputs& in);

}  // namespace attn
