// Positional encodings of embeddings (Position, core/options.h).
#pragma once

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// positions (L, M), f64. In doubles, each operation rounded once and in the order of the formula.
Tensor sinusoidal_positions(const Position& position, std::size_t L, std::size_t M);

/// inputs (B, L, M) = embedding_scale * embeddings + positions: computed in doubles, rounded once
/// to `compute`. Without scale and positions, returns the embeddings unchanged, integers
/// included.
Tensor add_positions(const Tensor& embeddings, const Position& position, DType compute);

}  // namespace attn
