// From tensors as a user gave them to tensors whose shapes are proved.
//
// Every check on shapes, dtypes and options stands here and is made once; all that is wrong is told
// at once (Error(data), a line each: "W_Q: expected (3, *) to match embeddings (4, 3), found (2,
// 3)"), each line beginning with the tensor's or the option's name.
//
// Two forms of problem:
//   embeddings (L, M) or (B, L, M), perhaps memory (S, Mk) or (B, S, Mk) from which keys and values
//     come (or memory_V (S, Mv) from which the values do), and any of W_Q, W_K, W_V (the identity
//     where absent) and b_Q, b_K, b_V;
//   Q and K, and V (K where absent), all (L, D), all (B, L, D) or all (B, H, L, D).
// With either: W_O, b_O, a mask, past_K and past_V (shaped as the outputs keys and values are, or
// (B, G, P, D)), what core/places.h says of lengths and documents, and what the options name
// (core/shapes.h). A single vector is written
// as a matrix of one row: 1-D is refused. Integers and booleans (0 and 1) become int64, floats the
// dtype that is computed in. In a mask, booleans and the integers 0 and 1 say what is seen; floats,
// 0.0 and 1.0 too, are added.
//
// Any of B, L, S, Dv may be 0. D may be 0 where the scale does not divide by sqrt(D). With S = 0
// no query sees a key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/core/input_table.h"
#include "attn/core/options.h"
#include "attn/core/score_scale.h"
#include "attn/kernel/problem.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The segments and positions of the queries and keys of a batch row (core/token_positions.h).
struct TokenPositions {
  static constexpr std::int64_t kPadding = -1;
  struct Side {
    std::vector<std::int64_t> segment_ids;  ///< equal ids: one segment; kPadding: in none
    std::vector<std::int64_t> positions;    ///< in the segment; for a query, plus the offset
  };
  Side queries, keys;  ///< L and P + N
};

/// A proved problem. Ranks are lifted to the full letters, so nothing after this has to look at a
/// rank again; all elements are int64 or of dtype `compute`.
struct Inputs {
  bool projected = false;                ///< embeddings and weights, rather than Q, K and V
  Tensor embeddings;                     ///< (B, L, M)
  std::optional<Tensor> memory;          ///< (B, N, Mk)
  std::optional<Tensor> memory_V;        ///< (B, N, Mv)
  Tensor Q, K, V;                        ///< (B, H, L, D), (B, G, N, D), (B, G, N, Dv)
  std::optional<Tensor> past_K, past_V;  ///< (B, G, P, D), (B, G, P, Dv); before the new keys

  std::optional<Tensor> W_Q, W_K, W_V, W_O;  ///< (M, H*D) (Mk, G*D) (Mk, G*Dv) (H*Dv, Mo)
  std::optional<Tensor> b_Q, b_K, b_V, b_O;  ///< (H*D) (G*D) (G*Dv) (Mo)
  std::optional<Tensor> mask;      ///< boolean or to be added; axes 1 or those of (B, H, L, P + N)
  std::optional<Tensor> key_mask;  ///< the same, (B, 1, 1, P + N) or 1 for B

  std::optional<Tensor> bias_K, bias_V;   ///< (B, G, 1, D), (B, G, 1, Dv): a key behind all others
  std::optional<Tensor> q_norm, k_norm;   ///< (D)
  std::optional<Tensor> cos, sin;         ///< (places, r / 2) or (B, N, r / 2), or 1 for B
  Tensor query_positions, key_positions;  ///< (B, L), (B, N), or 1 for B; int64, for rotary
  std::optional<Tensor> slopes;           ///< (B, H) or (1, H), of ALiBi
  std::optional<Tensor> relative_bias;    ///< (buckets, H)
  std::optional<Tensor> sinks;            ///< (H)
  std::optional<Tensor> W_score, W_score_Q, W_score_K, b_score, v_score, g_score;  ///< core/score.h

  std::vector<TokenPositions> token_positions;  ///< for each batch row, or one for all
  /// For each entry of token_positions, a range for each of `rows`; nothing where the keys that
  /// some query sees are not next to each other.
  std::optional<std::vector<kernel::KeyRange>> key_ranges;  ///< core/visibility.h
  ScoreScale scale;

  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  /// S = P + N + E: keys of the past, new ones, and those that every query sees: bias_K, zero_key.
  std::size_t P = 0, N = 0, E = 0;
  /// Whether the past's keys are a memory's, so that the queries' places do not follow them.
  bool past_of_memory = false;
  DType compute = DType::f64;     ///< f32 or f64: what everything after the first division is in
  DType result = DType::f64;      ///< what float outputs are rounded to: compute, or f16/bf16
  std::vector<std::size_t> rows;  ///< the queries to compute, as places in 0..L-1
  bool batched = false;           ///< the user's tensors have a batch axis, so results have one
  bool with_heads = false;        ///< results show the head axis
  bool packed = true;             ///< context is (B, L, H*Dv) rather than (B, H, L, Dv)
};

Inputs make_inputs(const TensorMap& tensors, const Options& options);

}  // namespace attn
