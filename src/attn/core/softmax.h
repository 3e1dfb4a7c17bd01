// From scores to weights that sum to 1, and from weights to contexts.
#pragma once

#include "attn/core/mask.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct Normalised {
  Tensor weights;    ///< (B, H, L, S)
  Tensor logsumexp;  ///< (B, H, L): weights = exp(masked_scores - logsumexp)
};

/// Over the visible keys of a query (SoftmaxAxis::keys), or of all queries of a head
/// (SoftmaxAxis::all, where all its rows have one logsumexp):
///   weights = exp(x - max x) / sum exp(x - max x),   logsumexp = max x + log(sum exp(x - max x))
/// Hidden keys weigh 0. Where none is visible: EmptyRows (padding
/// weighs 0 whatever that is), and logsumexp is -inf. A visible NaN
/// makes the weights of all visible keys NaN, and so does a visible +inf (inf - inf), as in NumPy.
/// exp is taken in the scores' dtype; sums are in double.
Normalised softmax(const Masked& masked, SoftmaxAxis axis, EmptyRows empty_rows);

/// context (B, H, L, Dv) = weights (B, H, L, S) times values (B, G, S, Dv). A hidden key that
/// weighs 0 contributes nothing even where its value is NaN or infinite (0 * NaN is NaN); a visible
/// one does, as in NumPy.
Tensor weigh(const Tensor& weights, const Tensor& values, const Tensor& visible);

}  // namespace attn
