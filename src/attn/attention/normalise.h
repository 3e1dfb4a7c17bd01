// Normalisers, which turn masked scores into weights.
#pragma once

#include <optional>
#include <utility>

#include "attn/problem/mask.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Weights (B, H, L, S) and logsumexp (B, H, L), log(sum exp x) for every normaliser, of masked
/// scores (B, H, L, S). Over the visible keys of a query (SoftmaxAxis::keys), or of all queries of
/// a head (SoftmaxAxis::all; its rows have the same logsumexp), with x = masked score /
/// temperature:
///   softmax:   exp(x - max x) / sum exp(x - max x);   logsumexp = max x + log(sum exp(x - max x))
///   sigmoid:   1 / (1 + exp(-x)), for each key separately
///   none:      x
///   sparsemax, entmax15, hardmax, top_k: attention/weighted_values.h
/// Hidden keys have weight 0. Without visible keys the weights follow EmptyRows and logsumexp is
/// -inf; uniform weights sum to 1. Padded queries have weights 0. Where scores are normalised
/// together, a visible NaN or +inf (inf - inf) makes the weights of all visible keys NaN, as in
/// NumPy.
///
/// `sinks` (H), for softmax over keys: a learned score per head without a value (Xiao et al. 2023,
/// arXiv:2309.17453). It is included in the maximum and the sum, so the weights sum to less than 1,
/// and EmptyRows does not apply.
///
/// exp is taken in the scores' dtype (or SoftmaxPrecision, which rounds x and the weights too);
/// sums are in double.
std::pair<Tensor, Tensor> normalise(const Tensor& masked, const VisibleKeys& visible,
                                    const std::optional<Tensor>& sinks, const Options& options);

/// The weight of each of `keys` keys for a query that sees none of them.
double empty_weight(EmptyRows empty_rows, std::size_t keys);

}  // namespace attn
