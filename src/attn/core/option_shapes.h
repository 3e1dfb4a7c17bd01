// Shapes of the tensors that options use.
#pragma once

#include "attn/core/axis_lengths.h"
#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Checks these shapes, with the axes of core/shapes.h:
///   bias_K (G*Dk) and bias_V (G*Dv) · q_norm (D) and k_norm (Dk) · sinks (H)
///   alibi_slopes (H) or (B, H) · relative_bias (buckets, H)
///   W_score (D, Dk) or, of Score::concat, (D + Dk, A) · W_score_Q (D, A) · W_score_K (Dk, A)
///   b_score and v_score (A) · g_score () or (1)
void check_option_shapes(const TensorMap& tensors, const Options& options, AxisLengths& axes);

/// The positions of queries and new keys for rotary, from position_ids (L) or (B, L) and
/// key_position_ids (N) or (B, N), by default counted from the end of the past; cos and sin as in
/// core/rotary.h. The lengths of the axes are already set in `in`.
void set_rotary(const TensorMap& numbers, const Options& options, Inputs& in, AxisLengths& axes);

}  // namespace attn
