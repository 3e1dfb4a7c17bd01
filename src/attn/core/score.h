// How similar a query and a key are, before and after scaling.
#pragma once

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// scores (B, H, L, S) of queries (B, H, L, D) and keys (B, G, S, Dk); query head h meets key head
/// h / (H / G). Dk is D unless weights make up for it.
///   dot:      q . k             integers stay exact, Error(data) where one does not fit int64
///   cosine:   q . k / (|q| |k|) a float of dtype `in.compute`; 0/0 is NaN, as NumPy has it
///   l2:       -|q - k|^2        summed as it stands, so that equal vectors give 0
///   general:  q W_score k       Luong et al. 2015, arXiv:1508.04025; W_score (D, Dk); integers
///   exact additive: v . tanh(q W_Q + k W_K + b)    Bahdanau et al. 2015, arXiv:1409.0473;
///   W_score_Q
///             (D, A), W_score_K (Dk, A), the identity where absent; b_score and v_score (A), zeros
///             and ones where absent; with g_score, v is g v / |v| (Salimans and Kingma 2016)
///   concat:   v . tanh([q k] W_score + b)    Luong et al. 2015; W_score (D + Dk, A)
Tensor score(const Tensor& queries, const Tensor& keys, const Inputs& in, Score kind);

/// x / |x| of each row of (..., N, D), in float64, rounded once to `compute`; NaN where a row is
/// zero.
Tensor unit_rows(const Tensor& x, DType compute);

/// The scores scaled, and capped softly where softcap c > 0 comes before the mask: c tanh(x / c)
/// (Bello et al. 2016, arXiv:1611.09940, section 5.2). Computed in doubles, rounded once to
/// in.compute; scaled by a division by sqrt(D), which is what scores / sqrt(D) is in NumPy.
Tensor scale_scores(const Tensor& scores, const Inputs& in, const Options& options);

}  // namespace attn
