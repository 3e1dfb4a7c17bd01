#include "attn/core/inputs.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/core/axis_lengths.h"
#include "attn/core/mask.h"
#include "attn/core/position_bias.h"
#include "attn/core/projection.h"
#include "attn/core/shapes.h"
#include "attn/core/token_positions.h"

namespace attn {
namespace {

/// The mask as (B, H, L, S), where missing axes have length 1: leading ones and, without heads, the
/// head axis.
Tensor canonical_mask(const Tensor& mask, bool with_heads) {
  Shape shape = mask.shape();
  if (!with_heads && shape.size() == 3) shape.insert(shape.begin() + 1, 1);
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  return mask.reshaped(shape);
}

/// `full` is (B, H, L, S), the shape of `matrix`; the message shows it as the user sees it.
void check_mask(Input input, const Tensor& mask, Shape full, const Inputs& in, AxisLengths& axes,
                Output matrix = Output::scores) {
  const Shape shape = canonical_mask(mask, in.with_heads).shape();
  bool fits = shape.size() == 4;
  for (std::size_t axis = 0; fits && axis < 4; ++axis)
    fits = shape[axis] == 1 || shape[axis] == full[axis];
  if (fits) return;
  const bool is_of_keys =
      input == Input::mask && in.batched && mask.shape() == Shape{full[0], full[3]};
  if (!in.with_heads) full.erase(full.begin() + 1);
  if (!in.batched) full.erase(full.begin());
  axes.problem(input,
               {.expected = "a shape that broadcasts to the " + std::string(name_of(matrix)) + " " +
                            to_string(full),
                .found = to_string(mask.shape()),
                .hint = is_of_keys ? "a mask (B, S) of keys is a key_mask (--key-mask)" : ""});
}

/// Limits the axes of tensors without elements. A file of a few bytes can declare any length, and
/// the computation allocates memory for each row.
void limit_empty_tensors(const TensorMap& tensors) {
  constexpr std::size_t kMaxLength = std::size_t{1} << 20;
  for (const auto& [name, tensor] : tensors)
    for (const std::size_t length : tensor.shape())
      if (tensor.size() == 0 && length > kMaxLength)
        throw Error(ErrorKind::data,
                    Problem{.subject = name,
                            .expected = "axis lengths of at most " + std::to_string(kMaxLength) +
                                        " in a tensor without elements",
                            .found = to_string(tensor.shape())});
}

DType compute_dtype(DType result) { return result == DType::f64 ? DType::f64 : DType::f32; }

/// The mask extended to `keys` columns; the added columns hide their keys.
Tensor with_hidden_columns(const Tensor& mask, std::size_t keys, MaskPolarity polarity) {
  if (mask.rank() == 0 || mask.shape().back() >= keys) return mask;
  Shape shape = mask.shape();
  const std::size_t columns = shape.back();
  shape.back() = keys;
  Tensor wide(mask.dtype(), shape);
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    const auto hidden = is_float(mask.dtype())
                            ? static_cast<T>(-std::numeric_limits<double>::infinity())
                            : static_cast<T>(polarity == MaskPolarity::ignore);
    const auto from = mask.data<T>();
    const auto to = wide.mutable_data<T>();
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = i % keys < columns ? from[i / keys * columns + i % keys] : hidden;
  });
  return wide;
}

/// (B * H, L, S) -> (B, H, L, S); other shapes are returned unchanged.
Tensor split_joined_heads(const Tensor& mask, const Inputs& in) {
  const Shape& shape = mask.shape();
  const bool joined = shape.size() == 3 && in.with_heads && in.B > 1 && shape[0] == in.B * in.H;
  return joined ? mask.reshaped({in.B, in.H, shape[1], shape[2]}) : mask;
}

void set_dropout_mask(const TensorMap& tensors, Inputs& in, AxisLengths& axes) {
  const Tensor* given = find(tensors, Input::dropout_mask);
  if (given == nullptr) return;
  const Tensor mask = split_joined_heads(as_flags(Input::dropout_mask, *given, axes), in);
  check_mask(Input::dropout_mask, mask, {in.B, in.H, in.L, in.S}, in, axes, Output::weights);
  in[Input::dropout_mask] = canonical_mask(mask, in.with_heads);
}

void set_mask(const TensorMap& tensors, Inputs& in, AxisLengths& axes) {
  const std::size_t keys = in.P + in.N;
  if (const Tensor* given = find(tensors, Input::mask)) {
    Tensor mask = split_joined_heads(as_mask(Input::mask, *given, in.compute, axes), in);
    if (in.options.short_mask == ShortMask::hide)
      mask = with_hidden_columns(mask, keys, in.options.mask_polarity);
    check_mask(Input::mask, mask, {in.B, in.H, in.L, keys}, in, axes);
    in[Input::mask] = canonical_mask(mask, in.with_heads);
  }
  if (const Tensor* given = find(tensors, Input::bias)) {
    if (given->dtype() == DType::boolean)
      axes.problem(Input::bias,
                   {.expected = "numbers to add", .found = "booleans", .hint = "use mask"});
    const Tensor bias = split_joined_heads(cast(*given, in.compute), in);
    check_mask(Input::bias, bias, {in.B, in.H, in.L, keys}, in, axes);
    in[Input::bias] = canonical_mask(bias, in.with_heads);
  }
  if (const Tensor* given = find(tensors, Input::key_mask)) {
    const Tensor mask = as_mask(Input::key_mask, *given, in.compute, axes);
    const bool fits = mask.shape() == Shape{keys} || mask.shape() == Shape{in.B, keys};
    if (!fits)
      return axes.problem(Input::key_mask, {.expected = "shape " + to_string({keys}) + " or " +
                                                        to_string({in.B, keys}),
                                            .found = to_string(mask.shape())});
    in[Input::key_mask] = mask.reshaped({mask.rank() == 1 ? 1 : in.B, 1, 1, keys});
  }
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
  if (tensor.rank() != 4) return split_heads(canonical_rows(tensor, in), heads);
  return in.options.layout == Layout::bhld ? tensor : swap_middle_axes(tensor);
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

/// The tensor of an input in the shape that Inputs::tensors states.
Tensor canonical(Input input, const Tensor& tensor, const Inputs& in) {
  using enum Input;
  switch (input) {
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

/// Sets the tensors of factors and tables.
void set_tensors(const TensorMap& numbers, Inputs& in) {
  for (const auto& [name, tensor] : numbers) {
    const Input input = *input_named(name);
    const InputKind kind = row_of(input).kind;
    const bool is_set = kind == InputKind::factor || kind == InputKind::table;
    if (is_set && input != Input::bias) in[input] = canonical(input, tensor, in);
  }
}

void set_token_ids(const TensorMap& numbers, Inputs& in, AxisLengths& axes) {
  const Tensor* ids = find(numbers, Input::token_ids);
  if (ids == nullptr) return;
  const std::size_t keys = in.P + in.N;
  const Shape& shape = ids->shape();
  const bool fits = shape == Shape{keys} || shape == Shape{in.B, keys};
  if (ids->dtype() == DType::i64 && fits) {
    in[Input::token_ids] = ids->reshaped({shape.size() == 1 ? 1 : in.B, keys});
    return;
  }
  axes.problem(
      Input::token_ids,
      {.expected = "whole numbers of shape " + to_string({keys}) + " or " + to_string({in.B, keys}),
       .found = std::string(name_of(ids->dtype())) + " " + to_string(shape)});
}

void set_lengths(Inputs& in, const AxisLengths& axes) {
  const auto take = [&](Axis axis, std::size_t& length) {
    if (axes.knows(axis)) length = axes[axis].length;
  };
  in.batched = axes.knows(Axis::B);
  take(Axis::B, in.B), take(Axis::H, in.H), take(Axis::G, in.G);
  take(Axis::L, in.L), take(Axis::S, in.S), take(Axis::P, in.P), take(Axis::N, in.N);
  take(Axis::D, in.D), take(Axis::Dv, in.Dv);
  in.E = in.S - std::min(in.S, in.P + in.N);
}

}  // namespace

std::size_t bytes_of_conversions(const TensorMap& tensors, const Options& options) {
  const DType compute = compute_dtype(result_dtype(tensors, options.compute));
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto input = input_named(name);
    const DType dtype = converted_dtype(input, tensor.dtype(), compute);
    if (dtype != tensor.dtype()) bytes += tensor.size() * size_of(dtype);
  }
  return bytes;
}

Inputs make_inputs(const TensorMap& tensors, const Options& options) {
  limit_empty_tensors(tensors);
  AxisLengths axes;
  Inputs in;
  in.given = tensors;
  in.options = options;
  in.result = result_dtype(tensors, options.compute);
  in.compute = compute_dtype(in.result);
  const Tensor* Q = find(tensors, Input::Q);
  in.projected = Q == nullptr;
  in.past_of_memory = contains(tensors, Input::memory);
  in.packed = Q == nullptr || Q->rank() != 4;
  in.with_heads = options.heads > 0 || !in.packed;
  check_names(tensors, axes);
  if (options.lse_base != std::numbers::e && options.lse_base != 2)
    axes.problem({.subject = "lse_base", .expected = "e or 2", .found = "another number"});
  const TensorMap numbers = as_numbers(tensors, in.compute, axes);
  check_shapes(tensors, options, axes);
  set_lengths(in, axes);
  if (axes.knows(Axis::L)) in.rows = chosen_rows(options.rows, in.L, axes);
  if (axes.knows(Axis::L) && axes.knows(Axis::S) && axes.knows(Axis::H)) {
    set_mask(tensors, in, axes);
    set_dropout_mask(tensors, in, axes);
    if (axes.knows(Axis::D)) set_rotary(numbers, in, axes);
    if (axes.knows(Axis::D)) set_rotary_divisors(tensors, in, axes);
    in.token_positions = make_token_positions(numbers, in, axes);
    set_token_ids(numbers, in, axes);
  }
  if (!axes.problems().empty()) axes.problems().raise(ErrorKind::data);
  set_tensors(numbers, in);
  in.key_ranges = key_ranges(in);
  in.scale = score_scale(options, in.D);
  if (options.alibi) in[Input::alibi_slopes] = standard_slopes(in.H);
  return in;
}

}  // namespace attn
