// Axes and rows in another order: heads side by side or apart, selected, joined, repeated and
// summed.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

/// (B, N, heads * D) -> (B, heads, N, D): head h has the columns h * D to h * D + D - 1.
Tensor split_heads(Tensor packed, std::size_t heads);

/// (B, heads, N, D) -> (B, N, heads * D); the inverse of split_heads().
Tensor side_by_side(const Tensor& split);

/// (A, B, C, D) -> (A, C, B, D).
Tensor swap_middle_axes(Tensor tensor);

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

/// Rows first to first + count of (..., N, D).
Tensor row_range(const Tensor& x, std::size_t first, std::size_t count);

/// The sums of x over the axes that have length 1 in `shape`, which has the same rank.
/// Both are float64.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace attn
