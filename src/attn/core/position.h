// Where a token stands, added to what it means (Position, core/options.h).
#pragma once

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// positions (L, M), f64. In doubles, each operation rounded once and in the order of the formula.
Tensor sinusoidal_positions(const Position& position, std::size_t L, std::size_t M);

/// inputs (B, L, M) = embedding_scale * embeddings + positions: computed in doubles, rounded once
/// to `compute`. Embeddings that nothing is done to come back as they are, integers included.
Tensor add_positions(const Tensor& embeddings, const Position& position, DType compute);

}  // namespace attn
