// Scores of queries and keys.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The weights of a score function, which score() defines.
template <class Value>
struct ScoreWeights {
  std::optional<Value> W, W_Q, W_K, b, v, g;  ///< W_score, W_score_Q, ...
};

/// What the tanh of Score::additive and Score::concat is taken of, but b: q W_Q or k W_K.
Tensor additive_factor(const Tensor& x, const ScoreWeights<Tensor>& weights, Score kind,
                       bool queries);

/// v of Score::additive and Score::concat in full, (A).
std::vector<double> output_weights(const ScoreWeights<Tensor>& weights, std::size_t A);

/// Score::additive and Score::concat, defined at score(): (B, H, L, S) of dtype `compute`.
Tensor additive_scores(const Tensor& queries, const Tensor& keys,
                       const ScoreWeights<Tensor>& weights, Score kind, DType compute);

/// Score::l2, defined at score().
Tensor negative_square_distances(const Tensor& queries, const Tensor& keys, DType compute);

/// scores (B, H, L, S) of queries (B, H, L, D) and keys (B, G, S, Dk); query head h uses key head
/// h / (H / G). Dk is D unless the score function has weights.
///   dot:      q . k             integers stay exact, Error(data) if one does not fit int64
///   cosine:   q . k / (|q| |k|) a float of dtype `compute`; NaN if a vector is zero
///   l2:       -|q - k|^2        summed directly, so that equal vectors give 0
///   general:  q W_score k       Luong et al. 2015, arXiv:1508.04025; W_score (D, Dk); integers
///             stay exact
///   additive: v . tanh(q W_Q + k W_K + b)    Bahdanau et al. 2015, arXiv:1409.0473; W_score_Q
///             (D, A) and W_score_K (Dk, A) default to the identity, b_score (A) to 0, v_score (A)
///             to 1; with g_score, v is g v / |v| (Salimans and Kingma 2016)
///   concat:   v . tanh([q k] W_score + b)    Luong et al. 2015; W_score (D + Dk, A)
/// `in_bf16`: dot, cosine and general are products of rounded_to_bf16() factors.
Tensor score(const Tensor& queries, const Tensor& keys, const ScoreWeights<Tensor>& weights,
             Score kind, DType compute, bool in_bf16 = false);

/// Whether the products of queries and keys and of weights and values have factors in bfloat16.
inline bool rounds_factors_to_bf16(const Inputs& in) {
  return in.options.bf16_products && in.compute == DType::f32;
}

/// A floating-point tensor rounded to bfloat16, as float32; subnormal numbers become 0.
Tensor rounded_to_bf16(const Tensor& x);

/// x / |x| of each row of (..., N, D), in float64, rounded once to `compute`; NaN if a row is zero.
Tensor unit_rows(const Tensor& x, DType compute);

/// x (B, H, rows, S) times `scale` (H), in doubles, rounded once to x's dtype.
Tensor times_by_head(const Tensor& x, const Tensor& scale);

/// Scaled scores, also by head_scale where given, with the softcap c tanh(x / c) if it comes before
/// the mask (Bello et al. 2016, arXiv:1611.09940, section 5.2). Computed in doubles, rounded once
/// to in.compute. Divides by sqrt(D) instead of multiplying by its inverse, so that results equal
/// NumPy's scores / sqrt(D).
Tensor scale_scores(const Tensor& scores, const std::optional<Tensor>& head_scale,
                    const Inputs& in);

}  // namespace attn
