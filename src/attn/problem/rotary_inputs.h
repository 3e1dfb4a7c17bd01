// The checked inputs of rotary positions, from which attention/rotary.h computes angles.
#pragma once

#include <cstddef>

#include "attn/problem/axis_lengths.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The number r of columns of each head that are rotated.
std::size_t rotated_columns(const Inputs& in);

/// Sets the positions of queries and new keys for rotary and query_scale, from position_ids (L) or
/// (B, L) and key_position_ids (N) or (B, N), by default counted from the end of the past, and the
/// factors of longrope for the context length that follows from them. Checks the options, and cos
/// and sin as in attention/rotary.h. The lengths of the axes are already set in `in`.
void set_rotary_inputs(const TensorMap& numbers, Inputs& in, AxisLengths& axes);

}  // namespace attn
