// Normalisation of queries and keys before their product, and of the embeddings.
#pragma once

#include <optional>
#include <span>

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// x (B, heads, N, D) with each token normalised, in each head or over all heads
/// (options.qk_norm_axis; OLMo 2, arXiv:2501.00656):
///   rms:   x / sqrt(mean(x^2) + epsilon)                 Zhang and Sennrich 2019, arXiv:1910.07467
///   l2:    x / max(|x|, epsilon)                         Henry et al. 2020, arXiv:2010.04245
///   layer: (x - mean(x)) / sqrt(variance(x) + epsilon)   Ba et al. 2016, arXiv:1607.06450
/// then times `weight` plus `bias`, both (heads or 1, D), where given. Computed in doubles, rounded
/// once to `compute`.
Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                     const std::optional<Tensor>& bias, const Options& options, DType compute);

/// The options with which qk_normalised() computes input_norm.
Options with_input_norm(const Options& options);

/// The epsilon of the formulas above.
double norm_epsilon(const Options& options);

/// Normalises the columns of one token in place, without weight and bias. Returns the divisor.
double normalise_columns(std::span<double> x, const Options& options);

}  // namespace attn
