// Rearranged axes and rows of tensors of any dtype.
#pragma once

#include <cstddef>
#include <vector>

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

}  // namespace attn
