// Checks of shapes: which axes of the tensors must match.
#pragma once

#include "attn/core/axis_lengths.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Determines the axes of a problem: B (if there is a batch axis), H, G, L, D, Dk, Dv,
/// S = P + N + E (past keys, new ones, and those appended for every query),
///   HD = H * D, GD = G * Dk, GDv = G * Dv, HDv = H * Dv   the widths of packed tensors
///   M, Mk, Mo                                            of embeddings, memory and output
/// and those of the tensors of options,
///   bias_K (G*Dk) · bias_V (G*Dv) · q_norm (D) · k_norm (Dk) · alibi_slopes (H) or (B, H) · sinks
///   (H) relative_bias (buckets, H) · W_score (D, Dk) or (D + Dk, A) · W_score_Q (D, A) W_score_K
///   (Dk, A) · b_score, v_score (A) · g_score ()
/// Dk is D unless the score function has weights between queries and keys. If no problem was
/// reported, the axes up to S are known.
void check_shapes(const TensorMap& tensors, const Options& options, AxisLengths& axes);

}  // namespace attn
