// How similar a query and a key are, before and after scaling.
#pragma once

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// scores (B, H, L, S) of queries (B, H, L, D) and keys (B, G, S, D); query head h meets key head
/// h / (H / G).
///   dot:    q . k            integers stay exact, Error(data) where one does not fit int64
///   cosine: q . k / (|q| |k|), a float of dtype `compute`; 0/0 is NaN, as NumPy has it
Tensor score(const Tensor& queries, const Tensor& keys, Score kind, DType compute);

/// scaled_scores: the scores scaled, then capped softly where softcap c > 0: c tanh(x / c)
/// (Bello et al. 2016, arXiv:1611.09940, section 5.2). Computed in doubles, rounded once to
/// `compute`; scaled by a division by sqrt(D), which is what scores / sqrt(D) is in NumPy.
Tensor scale_scores(const Tensor& scores, const Options& options, std::size_t D, DType compute);

}  // namespace attn
