// Normalisation of queries and keys, head by head.
#pragma once

#include <optional>

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// x (B, heads, N, D), each row divided by its norm, then times `weight` (D) if given:
///   rms: sqrt(mean(x^2) + epsilon)   Zhang and Sennrich 2019, arXiv:1910.07467
///   l2:  max(|x|, epsilon)           Henry et al. 2020, arXiv:2010.04245
/// Computed in doubles, rounded once to `compute`.
Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight, QkNorm norm,
                     double epsilon, DType compute);

}  // namespace attn
