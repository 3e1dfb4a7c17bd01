// What weights and scores come to along one of their axes.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

// Of (B, H, L, S) floats; sums in doubles, rounded once. An empty axis sums to 0, and its largest
// is -inf.
Tensor mean_over_heads(const Tensor& weights);    ///< (B, L, S)
Tensor sum_over_queries(const Tensor& weights);   ///< (B, H, S): what each key is given in all
Tensor largest_of_queries(const Tensor& scores);  ///< (B, H, L); NaN where there is a NaN

}  // namespace attn
