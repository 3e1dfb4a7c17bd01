// Which tensor's axes have to agree with which; ranks, heads and groups.
#pragma once

#include "attn/core/axis_lengths.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Settles the letters of a problem: B (where there is a batch axis), H, G, L, D, Dk, Dv,
/// S = P + N + E (keys of the past, new ones, and those appended for all to see),
///   HD = H * D, GD = G * Dk, GDv = G * Dv, HDv = H * Dv   the widths of packed tensors
///   M, Mk, Mo                                            of embeddings, memory and output
/// and, of the tensors that options take,
///   bias_K (G*Dk) · bias_V (G*Dv) · q_norm (D) · k_norm (Dk) · alibi_slopes (H) or (B, H) · sinks
///   (H) relative_bias (buckets, H) · W_score (D, Dk) or (D + Dk, A) · W_score_Q (D, A) W_score_K
///   (Dk, A) · b_score, v_score (A) · g_score ()
/// Dk is D unless a score function has weights that meet keys of another width.
/// With no problems all of the first row are known.
void check_shapes(const TensorMap& tensors, const Options& options, AxisLengths& axes);

}  // namespace attn
