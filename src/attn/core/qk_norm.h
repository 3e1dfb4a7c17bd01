// Queries and keys normalised head by head, so that their products cannot grow without bound.
#pragma once

#include <optional>

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// x (B, heads, N, D), each row divided by its size, then times `weight` (D) where that is given:
///   rms: sqrt(mean(x^2) + epsilon)   Zhang and Sennrich 2019, arXiv:1910.07467
///   l2:  max(|x|, epsilon)           Henry et al. 2020, arXiv:2010.04245
/// Computed in doubles, rounded once to `compute`.
Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight, QkNorm norm,
                     double epsilon, DType compute);

}  // namespace attn
