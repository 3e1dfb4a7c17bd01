#include "attn/core/user_layout.h"

#include "attn/core/heads.h"

namespace attn {
namespace {

bool has_axis(Output output, Axis axis) {
  for (const Axis each : row_of(output).axes)
    if (each == axis) return true;
  return false;
}

/// Whether the output is (B, L, width) with a row for each token: it has the batch axis second if
/// the user's inputs do.
bool has_token_rows(Output output) {
  const AxisList& axes = row_of(output).axes;
  return axes.size() == 3 && axes[1] == Axis::L && axes.back() != Axis::S;
}

/// Without the batch and head axes that the user does not have.
Shape without_added_axes(Shape shape, bool has_heads, const Inputs& in) {
  if (has_heads && !in.with_heads) shape.erase(shape.begin() + 1);
  if (!in.batched) shape.erase(shape.begin());
  return shape;
}

Tensor token_rows(const Tensor& rows, const Inputs& in, const Options& options) {
  if (!in.batched) return rows.reshaped(without_added_axes(rows.shape(), false, in));
  return options.batch_second ? swap_first_axes(rows) : rows;
}

}  // namespace

Tensor to_user_layout(Output output, const Tensor& full, const Inputs& in, const Options& options) {
  if (!has_axis(output, Axis::B)) return full;
  if (output == Output::context && in.packed) return token_rows(side_by_side(full), in, options);
  if (output == Output::context)
    return options.layout == Layout::bhld ? full : swap_middle_axes(full);
  if (has_token_rows(output)) return token_rows(full, in, options);
  const bool has_heads = has_axis(output, Axis::H) || has_axis(output, Axis::G);
  return full.reshaped(without_added_axes(full.shape(), has_heads, in));
}

Shape to_user_shape(Output output, const Shape& full, const Inputs& in, const Options& options) {
  if (!has_axis(output, Axis::B)) return full;
  if (output == Output::context && !in.packed)
    return options.layout == Layout::bhld ? full : Shape{full[0], full[2], full[1], full[3]};
  if (!has_token_rows(output))
    return without_added_axes(full, has_axis(output, Axis::H) || has_axis(output, Axis::G), in);
  Shape shape = output == Output::context ? Shape{full[0], full[2], full[1] * full[3]} : full;
  if (in.batched && options.batch_second) std::swap(shape[0], shape[1]);
  return without_added_axes(shape, false, in);
}

Tensor weight_heads(Output output, const TensorMap& tensors, const Inputs& in) {
  const Tensor& W = at(tensors, *row_of(output).source);
  const std::size_t heads = has_axis(output, Axis::H) ? in.H : in.G;
  const std::size_t M = W.shape()[0], width = W.shape()[1];
  return split_heads(W.reshaped({1, M, width}), heads).reshaped({heads, M, width / heads});
}

}  // namespace attn
