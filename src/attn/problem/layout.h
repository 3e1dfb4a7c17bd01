// The layout of the user's tensors, and that of the computation, which has all axes
// (problem/inputs.h): conversion in both directions. A result is (L, D) for 2-D queries, and has a
// batch or head axis only if the inputs have one.
#pragma once

#include <array>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The output that contains the same numbers: head_context for context, which is head_context with
/// permuted axes.
constexpr Output same_numbers_as(Output output) {
  return output == Output::context ? Output::head_context : output;
}

/// same_numbers_as(output), with all axes as attention/formula.h computes it, in the user's layout.
Tensor to_user_layout(Output output, const Tensor& full, const Inputs& in);

/// The shape that to_user_layout() returns for `full`, the shape with all axes.
Shape to_user_shape(Output output, const Shape& full, const Inputs& in);

/// The axes of the output in the user's layout.
AxisList user_axes(Output output, const Inputs& in);

/// Whether heads are an axis of queries of this shape.
inline bool has_head_axis(const Shape& queries, const Options& options) {
  return queries.size() == (options.layout == Layout::thd ? 3 : 4);
}

/// The axes of a given tensor; empty if its row of problem/input_table.h does not tell. Without
/// heads, a mask or a cache has no axis of heads.
AxisList user_axes(Input input, const Shape& shape, const Options& options, bool with_heads);

/// The shape of same_numbers_as(output) with all axes. Not for outputs of other axes than B, H, L,
/// S, Dv and Mo.
Shape full_shape(Output output, const Inputs& in);

/// The inverse of to_user_layout().
Tensor to_full_layout(Output output, const Tensor& tensor, const Inputs& in);

/// The tensor of an input in the shape that Inputs::tensors states. With a batch, a tensor without
/// this axis is repeated where the computation needs it.
Tensor to_full_layout(Input input, const Tensor& tensor, const Inputs& in);

/// A derivative by in[input], f64, as a derivative by the tensor that the user gave: the transpose
/// of to_full_layout(), which adds what that repeats.
Tensor to_user_layout(Input input, const Tensor& full, const Inputs& in);

/// The weights whose axes are those of Options::weights_layout in the job.
inline constexpr std::array kProjectionWeights = {Input::W_Q, Input::W_K, Input::W_V, Input::W_O,
                                                  Input::W_gate};
/// The shape and axes of to_user_layout(): those of the given tensor, before job.cpp applied
/// weights_layout.
Shape gradient_shape(Input input, const Inputs& in);
AxisList gradient_axes(Input input, const Inputs& in);

}  // namespace attn
