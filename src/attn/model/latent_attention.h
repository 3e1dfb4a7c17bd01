// Queries, keys and values of multi-head latent attention (DeepSeek-V2, section 2.1,
// arXiv:2405.04434). No key of a job expresses the norms between their projections, so they are
// computed when the layer becomes a job (docs/decisions/0020-latent-attention.md).
#pragma once

#include <cstddef>
#include <string>

#include "attn/io/tensor_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The projections of a layer. Weights are names of tensors of `checkpoint`, (out, in); "": none.
struct LatentAttention {
  std::string checkpoint;
  std::string input_norm = {};  ///< (M): weights of the RMSNorm in front of the attention
  double input_epsilon = 0;     ///< of input_norm
  double latent_epsilon = 0;    ///< of q_norm and kv_norm
  std::string q_down = {}, q_down_bias = {}, q_norm = {};  ///< (rank of queries, M), (rank), (rank)
  std::string q_up = {};  ///< (H*(P + R), rank), or (H*(P + R), M) without q_down
  std::string kv_down = {}, kv_down_bias = {};  ///< (C + R, M), (C + R)
  std::string kv_norm = {}, kv_up = {};         ///< (C), (H*(P + Dv), C)
  std::size_t heads = 0;                        ///< H
  std::size_t plain_width = 0;                  ///< P: columns of a head without rotary positions
  std::size_t rotary_width = 0;                 ///< R: columns with rotary positions
  std::size_t value_width = 0;                  ///< Dv
  std::size_t latent_width = 0;                 ///< C: of the latent vector of keys and values
};

/// The width M of the hidden states; 0 if the tensors do not tell.
std::size_t hidden_width_of(const LatentAttention& layer, TensorFiles& files);

/// Reads no elements. Errors: data, for a tensor of another shape than the widths of the layer
/// require.
void require_shapes(const LatentAttention& layer, TensorFiles& files);

/// Before rotary positions, with the axes of the hidden states.
struct LatentTensors {
  Tensor Q, K;  ///< (..., H*(R + P)): in each head, the rotary columns come first
  Tensor V;     ///< (..., H*Dv)
};

/// Computes in float64 and rounds once: to float64 if the hidden states or a weight are float64
/// or integers, otherwise to float32. The tensors stay charged to the budget of `files`. Errors:
/// data, for tensors of other shapes; `hidden_name` is used in those about hidden states (L, M) or
/// (B, L, M).
LatentTensors latent_tensors(const LatentAttention& layer, const Tensor& hidden,
                             const std::string& hidden_name, TensorFiles& files);

}  // namespace attn
