// The weights of an attention layer as saved by PyTorch and Keras, found by their names.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

/// The weights as tensors of a job, and their names in the file.
struct SavedLayer {
  TensorMap tensors;                     ///< W_Q, b_Q, ..., bias_K, bias_V
  std::int64_t heads = 0, kv_heads = 0;  ///< 0: unknown
  std::set<std::string> names;
};

/// Finds arrays of these layers in `arrays`:
///   torch.nn.MultiheadAttention: in_proj_weight (3E, E), rows of q, k, v, or q_proj_weight,
///     k_proj_weight, v_proj_weight; in_proj_bias (3E); out_proj.weight, out_proj.bias; bias_k,
///     bias_v (1, 1, E), all under one path ("" or "encoder.self_attn."). PyTorch computes
///     y = x W^T + b.
///   keras.layers.MultiHeadAttention and GroupQueryAttention: query/kernel (M, H, D), query/bias
///     (H, D), the same of key and value, attention_output/kernel (H, Dv, M), attention_output/bias
///     (M), under any path.
/// Other arrays are ignored. `file` is for errors: data, if a shape differs from the above, or if
/// there are several PyTorch layers.
SavedLayer saved_layer(const TensorMap& arrays, const std::string& file);

/// Part `part` of the tensor's rows, which are divided into `parts` equal parts.
Tensor part_of_rows(const Tensor& tensor, std::size_t part, std::size_t parts);

}  // namespace attn
