// Factors on queries that grow with their position, so that attention stays sharp in long contexts.
#pragma once

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (B or 1, L, 1), f64, of positions p (B or 1, L), int64:
///   1 + factor * log(1 + floor((p + first) / length))
/// Nakanishi 2025, arXiv:2501.19399, as in Llama4TextAttention of transformers (first = 1) and in
/// Ministral 3 (first = 0).
Tensor query_factors(const QueryScale& scale, const Tensor& positions);

/// x (B, heads, N, D) times factors (B or 1, N, 1); in doubles, rounded once to `compute`.
Tensor times_by_position(const Tensor& x, const Tensor& factors, DType compute);

}  // namespace attn
