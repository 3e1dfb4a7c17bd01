// Linear projections of queries, keys, values and the output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// x W + b: x (B, N, M), W (M, P), b (P) -> (B, N, P). W defaults to the identity, b
/// to zero. Integers stay exact; Error(data) that names `stage` if one does not fit int64.
Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               Output stage);

/// W_Q_heads, W_K_heads or W_V_heads: the columns (M, heads * D) of the given weights as (heads, M,
/// D), in the dtype in which they were given.
Tensor weight_heads(Output output, const Inputs& in);

}  // namespace attn
