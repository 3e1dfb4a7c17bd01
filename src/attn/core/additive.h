// Score functions of pairs of a query and a key that are not matrix products.
#pragma once

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Score::additive and Score::concat (core/score.h): (B, H, L, S) of dtype in.compute.
Tensor additive_scores(const Tensor& queries, const Tensor& keys, const Inputs& in, Score kind);

/// Score::l2.
Tensor negative_square_distances(const Tensor& queries, const Tensor& keys, DType compute);

}  // namespace attn
