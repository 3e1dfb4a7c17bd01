// From tensors as a user gave them to tensors whose shapes are proved.
//
// Every check on shapes and dtypes stands here and is made once; all that is wrong is told at once
// (Error(data), a line each: "W_Q: expected (3, *) to match embeddings (4, 3), found (2, 3)").
#pragma once

#include <string>
#include <vector>

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The names under which attend() looks for tensors, in the order in which a seed draws them.
inline const std::vector<std::string> kInputNames = {"W_Q", "W_K", "W_V", "W_O",        "b_Q",
                                                     "b_K", "b_V", "b_O", "embeddings", "memory",
                                                     "Q",   "K",   "V",   "mask"};

/// What each output is called, in the order in which they are computed; and what it is.
struct OutputName {
  const char* name;
  const char* shape;
  const char* what;
};
extern const std::vector<OutputName> kOutputNames;

/// A proved problem. Either embeddings and weights, or queries, keys and values; ranks are lifted
/// to the full letters, so nothing after this has to look at a rank again.
struct Inputs {
  // Sources: (B, L, M) and (B, S, Mk); empty tensors when Q, K, V are given.
  Tensor embeddings, memory;
  // Projections: (M, H*D), (Mk, G*D), (Mk, G*Dv), (H*Dv, Mo); biases (H*D), (G*D), (G*Dv), (Mo).
  Tensor W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O;
  // Given directly: (B, H, L, D), (B, G, S, D), (B, G, S, Dv).
  Tensor Q, K, V;
  Tensor mask;  ///< boolean or additive, broadcastable to (B, H, L, S); as given

  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  DType compute = DType::f64;     ///< f32 or f64: what everything after the first division is in
  DType result = DType::f64;      ///< what float outputs are rounded to: compute, or f16/bf16
  std::vector<std::size_t> rows;  ///< the queries to compute, as positions in 0..L-1
  bool batched = false;           ///< the user's tensors have a batch axis, so results have one
  bool with_heads = false;        ///< results show the head axis
  bool packed = false;            ///< context is (B, L, H*Dv) rather than (B, H, L, Dv)
};

Inputs make_inputs(const TensorMap& tensors, const Options& options);

}  // namespace attn
