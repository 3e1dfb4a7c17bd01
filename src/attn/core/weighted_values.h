// The context: the weighted sum of the values.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

/// context (B, H, L, Dv) = weights (B, H, L, S) times values (B, G, S, Dv). `visible` is boolean
/// (B, H, L, S): a hidden key with weight 0 contributes nothing, even where its value is NaN or
/// infinite (0 * NaN is NaN); a visible one does, as in NumPy.
Tensor weighted_values(const Tensor& weights, const Tensor& values, const Tensor& visible);

}  // namespace attn
