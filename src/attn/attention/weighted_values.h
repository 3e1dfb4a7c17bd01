// The context (the weighted sum of the values), and normalisers other than softmax.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

/// context (B, H, L, Dv) = weights (B, H, L, S) times values (B, G, S, Dv). `visible` is boolean
/// (B, H, L, S): a hidden key with weight 0 contributes nothing, even where its value is NaN or
/// infinite (0 * NaN is NaN); a visible one does, as in NumPy.
Tensor weighted_values(const Tensor& weights, const Tensor& values, const Tensor& visible);

bool all_finite(const Tensor& values);

/// max(x_j - t, 0) with t such that the weights sum to 1: the projection onto the simplex (Martins
/// and Astudillo 2016, arXiv:1602.02068, algorithm 1).
std::vector<double> sparsemax(const std::vector<double>& x);

/// max(x_j / 2 - t, 0)^2 with t such that the weights sum to 1 (Peters et al. 2019,
/// arXiv:1905.05702, algorithm 2): between softmax and sparsemax.
std::vector<double> entmax15(const std::vector<double>& x);

/// 1 for the first maximum, 0 for the others.
std::vector<double> hardmax(const std::vector<double>& x);

/// The softmax of the k largest (of equal ones, the first), 0 for the others.
std::vector<double> top_k_softmax(const std::vector<double>& x, std::size_t k);

}  // namespace attn
