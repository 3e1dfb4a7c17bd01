// The weights of an attention layer under the names that its library saves them by.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// Those weights as tensors of a job, and the names that they had.
struct SavedLayer {
  TensorMap tensors;                     ///< W_Q, b_Q, ..., bias_K, bias_V
  std::int64_t heads = 0, kv_heads = 0;  ///< where the shapes say them
  std::set<std::string> names;
};

/// Looks among `arrays` for the names of
///   torch.nn.MultiheadAttention: in_proj_weight (3E, E), rows of q, k, v, or q_proj_weight,
///     k_proj_weight, v_proj_weight; in_proj_bias (3E); out_proj.weight, out_proj.bias; bias_k,
///     bias_v (1, 1, E). There y = x W^T + b.
///   keras.layers.MultiHeadAttention and GroupQueryAttention: query/kernel (M, H, D), query/bias
///     (H, D), the same of key and value, attention_output/kernel (H, Dv, M), attention_output/bias
///     (M), behind any path.
/// Other arrays are left alone. `file` is for errors: data, where a shape is not the one above.
SavedLayer saved_layer(const TensorMap& arrays, const std::string& file);

}  // namespace attn
