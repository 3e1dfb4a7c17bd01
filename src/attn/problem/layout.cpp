#include "attn/problem/layout.h"

#include <algorithm>

#include "attn/tensor/rearrange.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

/// Whether the output is (B, L, width) with a row for each token: it has the batch axis second if
/// the user's inputs do.
bool has_token_rows(Output output) {
  const AxisList& axes = row_of(output).axes;
  return axes.size() == 3 && axes[1] == Axis::L && axes.back() != Axis::S;
}

bool has_batch_second(Output output, const Inputs& in) {
  return in.batched && in.options.batch_second && has_token_rows(output) &&
         (in.packed || output != Output::context);
}

}  // namespace

AxisList user_axes(Output output, const Inputs& in) {
  using enum Axis;
  AxisList axes = row_of(output).axes;
  if (!axes.contains(B)) return axes;
  if (output == Output::context && !in.packed)
    axes = in.options.layout == Layout::bhld ? AxisList{B, H, L, Dv} : AxisList{B, L, H, Dv};
  if (has_batch_second(output, in)) axes.swap(0, 1);
  AxisList kept = {};
  for (const Axis axis : axes)
    if ((in.with_heads || !is_head(axis)) && (in.batched || axis != B))
      kept.insert(kept.size(), axis);
  return kept;
}

AxisList user_axes(Input input, const Shape& shape, const Options& options, bool with_heads) {
  const InputRow& row = row_of(input);
  AxisList axes = row.axes;
  if (row.kind == InputKind::table || row.kind == InputKind::index || axes.empty()) return {};
  if (is_packed(axes.back()) && has_head_axis(shape, options)) {
    using enum Axis;
    const bool is_of_keys = axes.back() == GD || axes.back() == GDv;
    const Axis width = axes.back() == HD ? D : axes.back() == GD ? Dk : Dv;
    axes.erase(axes.back());
    axes.insert(2, width);
    axes.insert(options.layout == Layout::bhld ? 1 : 2, is_of_keys ? G : H);
  } else if (options.batch_second && axes.size() == 3 && shape.size() == 3)
    axes.swap(0, 1);
  if (!with_heads && axes.size() > shape.size()) axes.erase(Axis::H), axes.erase(Axis::G);
  return axes.size() < shape.size() ? AxisList{} : axes.last(shape.size());
}

Tensor to_user_layout(Output output, const Tensor& full, const Inputs& in) {
  Tensor result = full;
  if (output == Output::context && in.packed) result = side_by_side(full);
  if (output == Output::context && !in.packed && in.options.layout != Layout::bhld)
    result = swap_middle_axes(full);
  if (has_batch_second(output, in)) result = swap_first_axes(result);
  return std::move(result).reshaped(to_user_shape(output, full.shape(), in));
}

Shape to_user_shape(Output output, const Shape& full, const Inputs& in) {
  const AxisList& all = row_of(same_numbers_as(output)).axes;
  Shape shape;
  for (const Axis axis : user_axes(output, in))
    shape.push_back(axis == Axis::HDv ? full[1] * full[3] : full[*all.find(axis)]);
  return shape;
}

Shape full_shape(Output output, const Inputs& in) {
  Shape shape;
  for (const Axis axis : row_of(same_numbers_as(output)).axes)
    shape.push_back(axis == Axis::B    ? in.B
                    : axis == Axis::H  ? in.H
                    : axis == Axis::L  ? in.rows.size()
                    : axis == Axis::S  ? in.S
                    : axis == Axis::Dv ? in.Dv
                    : in[Input::W_O]   ? in[Input::W_O]->shape()[1]
                                       : in.H * in[Input::W_UV]->shape()[2]);
  return shape;
}

Tensor to_full_layout(Output output, const Tensor& tensor, const Inputs& in) {
  const Shape full = full_shape(output, in);
  Tensor result = tensor;
  if (has_batch_second(output, in)) result = swap_first_axes(result);
  if (output == Output::context && in.packed)
    result = split_heads(result.reshaped({full[0], full[2], full[1] * full[3]}), in.H);
  if (output == Output::context && !in.packed && in.options.layout != Layout::bhld)
    result = swap_middle_axes(result.reshaped({full[0], full[2], full[1], full[3]}));
  return result.reshaped(full);
}

namespace {

/// The mask as (B, H, L, S), where missing axes have length 1: leading ones and, without heads, the
/// head axis.
Tensor canonical_mask(const Tensor& mask, bool with_heads) {
  Shape shape = mask.shape();
  if (!with_heads && shape.size() == 3) shape.insert(shape.begin() + 1, 1);
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  return mask.reshaped(shape);
}

/// (B * H, L, S) -> (B, H, L, S); other shapes are returned unchanged.
Tensor split_joined_heads(const Tensor& mask, const Inputs& in) {
  const Shape& shape = mask.shape();
  const bool joined = shape.size() == 3 && in.with_heads && in.B > 1 && shape[0] == in.B * in.H;
  return joined ? mask.reshaped({in.B, in.H, shape[1], shape[2]}) : mask;
}

/// (N, M), (B, N, M) or, with the batch second, (N, B, M) -> (B, N, M). A matrix is the same in all
/// items of the batch.
Tensor canonical_rows(const Tensor& tensor, const Inputs& in) {
  const Shape& shape = tensor.shape();
  if (tensor.rank() != 2) return in.options.batch_second ? swap_first_axes(tensor) : tensor;
  const Tensor item = tensor.reshaped({1, shape[0], shape[1]});
  return in.B == 1 ? item : repeated(item, in.B);
}

/// past_K or past_V, in the shape of the user's keys or with all four axes -> (B, G, P, D).
Tensor canonical_past(const Tensor& past, const Inputs& in) {
  const std::size_t rank = past.rank();
  return past.reshaped({in.B, in.G, past.shape()[rank - 2], past.shape()[rank - 1]});
}

/// Q, K or V in any of their forms -> (B, heads, N, D).
Tensor canonical_heads(const Tensor& tensor, std::size_t heads, const Inputs& in) {
  if (in.packed) return split_heads(canonical_rows(tensor, in), heads);
  if (in.options.layout == Layout::bhld) return tensor;
  const Shape& shape = tensor.shape();
  return swap_middle_axes(
      tensor.reshaped({in.B, shape[shape.size() - 3], heads, shape[shape.size() - 1]}));
}

/// (heads * D) -> (B, heads, 1, D), the same in every batch item.
Tensor canonical_key(const Tensor& bias, const Inputs& in) {
  return repeated(bias.reshaped({1, in.G, 1, bias.size() / in.G}), in.B);
}

/// (D), (heads, D) or (heads * D) -> (heads or 1, D).
Tensor canonical_norm(const Tensor& norm, std::size_t heads, const Options& options) {
  if (norm.rank() == 2) return norm;
  const std::size_t rows = options.qk_norm_axis == QkNormAxis::all ? heads : 1;
  return norm.reshaped({rows, norm.size() / rows});
}

/// The weights of a norm plus norm_offset.
Tensor with_offset(const Tensor& weight, const Options& options) {
  if (options.norm_offset == 0) return weight;
  Tensor sum = cast(weight, DType::f64);
  for (double& value : sum.mutable_data<double>()) value += options.norm_offset;
  return cast(sum, weight.dtype());
}

}  // namespace

Tensor to_full_layout(Input input, const Tensor& tensor, const Inputs& in) {
  using enum Input;
  switch (input) {
    case mask:
    case bias:
    case dropout_mask:
      return canonical_mask(split_joined_heads(tensor, in), in.with_heads);
    case key_mask:
      return tensor.reshaped({tensor.rank() == 1 ? 1 : in.B, 1, 1, in.P + in.N});
    case embeddings:
    case memory:
    case memory_V:
      return canonical_rows(tensor, in);
    case Q:
    case gate:
      return canonical_heads(tensor, in.H, in);
    case K:
    case V:
      return canonical_heads(tensor, in.G, in);
    case past_K:
    case past_V:
      return canonical_past(tensor, in);
    case bias_K:
    case bias_V:
      return canonical_key(tensor, in);
    case input_norm_weight:
      return with_offset(tensor.reshaped({1, tensor.size()}), in.options);
    case input_norm_bias:
      return tensor.reshaped({1, tensor.size()});
    case q_norm:
      return with_offset(canonical_norm(tensor, in.H, in.options), in.options);
    case q_norm_bias:
      return canonical_norm(tensor, in.H, in.options);
    case k_norm:
      return with_offset(canonical_norm(tensor, in.G, in.options), in.options);
    case k_norm_bias:
      return canonical_norm(tensor, in.G, in.options);
    case alibi_slopes:
      return tensor.rank() == 1 ? tensor.reshaped({1, in.H}) : tensor;
    default:
      return tensor;
  }
}

namespace {

bool is_transposed(Input input, const Inputs& in) {
  return in.options.weights_layout == WeightsLayout::out_in &&
         std::find(kProjectionWeights.begin(), kProjectionWeights.end(), input) !=
             kProjectionWeights.end() &&
         at(in.tensors, input).rank() == 2;
}

/// The first columns of each row of x, without those that with_hidden_columns() appended.
Tensor first_columns(const Tensor& x, std::size_t columns) {
  const std::size_t all = x.shape().back();
  return transposed_matrices(
      row_range(transposed_matrices(x.reshaped({1, x.size() / all, all})), 0, columns));
}

}  // namespace

Tensor to_user_layout(Input input, const Tensor& full, const Inputs& in) {
  const Shape& given = at(in.tensors, input).shape();
  const AxisList& axes = row_of(input).axes;
  Tensor result = full;
  if (!axes.empty() && is_packed(axes.back()) && full.rank() == 4 &&
      (given.size() == 2 || given.size() == 3))
    result = side_by_side(full);
  else if (given.size() == 4 && axes.size() == 3 && in.options.layout == Layout::blhd)
    result = swap_middle_axes(full);
  if (row_of(input).kind == InputKind::mask && !given.empty() && full.shape().back() > given.back())
    result = first_columns(full, given.back());
  if (result.size() > element_count(given)) {  // the same in all items of the batch
    Shape one = result.shape();
    one[0] = 1;
    result = sum_to(result, one);
  } else if (in.options.batch_second && given.size() == 3 && result.rank() == 3 &&
             axes.contains(Axis::B)) {
    result = swap_first_axes(result);
  }
  if (is_transposed(input, in)) result = transposed_matrices(result);
  return result.reshaped(gradient_shape(input, in));
}

Shape gradient_shape(Input input, const Inputs& in) {
  Shape shape = at(in.tensors, input).shape();
  if (is_transposed(input, in)) std::swap(shape[0], shape[1]);
  return shape;
}

AxisList gradient_axes(Input input, const Inputs& in) {
  AxisList axes = user_axes(input, at(in.tensors, input).shape(), in.options, in.with_heads);
  if (is_transposed(input, in)) axes.swap(0, 1);
  return axes;
}

}  // namespace attn
