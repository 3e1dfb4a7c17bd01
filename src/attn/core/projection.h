// Linear projections of queries, keys, values and the output; splitting and joining head axes.
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

/// (B, H, L, D) -> (H, B, L, D).
Tensor swap_batch_and_heads(const Tensor& tensor);

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

/// W_Q_heads, W_K_heads or W_V_heads: the columns (M, heads * D) of the given weights as (heads, M,
/// D), in the dtype in which they were given.
Tensor weight_heads(Output output, const Inputs& in);

}  // namespace attn
