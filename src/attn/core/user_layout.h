// Results in the layout of the user's tensors: (L, D) for 2-D queries, a batch or a head axis only
// where there is one.
#pragma once

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/core/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The output that has the same numbers: context is head_context with its axes permuted.
constexpr Output same_numbers_as(Output output) {
  return output == Output::context ? Output::head_context : output;
}

/// same_numbers_as(output), with all axes as core/formula.h computes it, in the user's layout.
Tensor to_user_layout(Output output, const Tensor& full, const Inputs& in, const Options& options);

/// The shape that to_user_layout() returns for `full`, the shape with all axes.
Shape to_user_shape(Output output, const Shape& full, const Inputs& in, const Options& options);

/// W_Q_heads, W_K_heads or W_V_heads: the columns (M, heads * D) of the given weights as (heads, M,
/// D), in the dtype in which they were given.
Tensor weight_heads(Output output, const TensorMap& tensors, const Inputs& in);

}  // namespace attn
