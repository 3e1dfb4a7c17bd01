// The linear projections that make queries, keys, values and the output.
#pragma once

#include <optional>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// x W + b: x (B, N, M), W (M, P), b (P) -> (B, N, P). W defaults to the identity, b
/// to zero. Integers stay exact; Error(data) that names `stage` if one does not fit int64.
Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               const std::string& stage);

}  // namespace attn
