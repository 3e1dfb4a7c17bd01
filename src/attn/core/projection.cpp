#include "attn/core/projection.h"

#include <cstring>

#include "attn/base/error.h"
#include "attn/core/gemm.h"

namespace attn {

Tensor swap_middle_axes(const Tensor& tensor) {
  const Shape& from = tensor.shape();
  if (from[1] <= 1 || from[2] <= 1)  // the order in memory is the same
    return tensor.reshaped({from[0], from[2], from[1], from[3]});
  Tensor swapped(tensor.dtype(), {from[0], from[2], from[1], from[3]});
  const std::size_t row = from[3] * size_of(tensor.dtype());
  if (tensor.size() == 0) return swapped;
  std::byte* to = swapped.mutable_raw();
  for (std::size_t a = 0; a < from[0]; ++a)
    for (std::size_t c = 0; c < from[2]; ++c)
      for (std::size_t b = 0; b < from[1]; ++b, to += row)
        std::memcpy(to, tensor.raw() + ((a * from[1] + b) * from[2] + c) * row, row);
  return swapped;
}

Tensor split_heads(const Tensor& packed, std::size_t heads) {
  const Shape& shape = packed.shape();
  return swap_middle_axes(packed.reshaped({shape[0], shape[1], heads, shape[2] / heads}));
}

Tensor side_by_side(const Tensor& split) {
  const Shape& shape = split.shape();
  return swap_middle_axes(split).reshaped({shape[0], shape[2], shape[1] * shape[3]});
}

Tensor swap_first_axes(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return swap_middle_axes(tensor.reshaped({1, shape[0], shape[1], shape[2]}))
      .reshaped({shape[1], shape[0], shape[2]});
}

Tensor take_rows(const Tensor& tensor, const std::vector<std::size_t>& rows) {
  Shape shape = tensor.shape();
  const std::size_t n = shape[shape.size() - 2];
  const std::size_t row = shape.back() * size_of(tensor.dtype());
  shape[shape.size() - 2] = rows.size();
  Tensor taken(tensor.dtype(), shape);
  if (taken.size() == 0) return taken;
  std::byte* to = taken.mutable_raw();
  for (const std::byte* matrix = tensor.raw(); matrix != tensor.raw() + tensor.bytes();
       matrix += n * row)
    for (const std::size_t index : rows) {
      std::memcpy(to, matrix + index * row, row);
      to += row;
    }
  return taken;
}

Tensor repeated(const Tensor& tensor, std::size_t count) {
  Shape shape = tensor.shape();
  shape[0] = count;
  Tensor all(tensor.dtype(), shape);
  for (std::size_t i = 0; i < count && tensor.bytes() > 0; ++i)
    std::memcpy(all.mutable_raw() + i * tensor.bytes(), tensor.raw(), tensor.bytes());
  return all;
}

Tensor append_rows(const Tensor& before, const Tensor& behind) {
  const DType dtype = before.dtype() == DType::i64 ? behind.dtype() : before.dtype();
  const Tensor parts[] = {cast(before, dtype), cast(behind, dtype)};
  Shape shape = before.shape();
  const std::size_t matrices = shape[0] * shape[1], width = shape[3] * size_of(dtype);
  shape[2] += behind.shape()[2];
  Tensor joined(dtype, shape);
  if (joined.size() == 0) return joined;
  std::byte* to = joined.mutable_raw();
  for (std::size_t i = 0; i < matrices; ++i)
    for (const Tensor& part : parts) {
      const std::size_t bytes = part.shape()[2] * width;
      if (bytes > 0) std::memcpy(to, part.raw() + i * bytes, bytes);
      to += bytes;
    }
  return joined;
}

namespace {

template <class T>
T sum(T y, T b, Output) {
  return y + b;
}

std::int64_t sum(std::int64_t y, std::int64_t b, Output stage) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(y, b, &result))
    throw Error(ErrorKind::data, Problem{.subject = std::string(name_of(stage)),
                                         .expected = "integers within int64",
                                         .found = "an overflow",
                                         .hint = "give the tensors as floating-point numbers"});
  return result;
}

template <class T>
Tensor add(Tensor y, const Tensor& b, Output stage) {
  const auto bias = b.data<T>();
  const auto out = y.mutable_data<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = sum(out[i], bias[i % bias.size()], stage);
  return y;
}

Tensor add_bias(const Tensor& y, const Tensor& b, Output stage) {
  const DType dtype = y.dtype() == DType::i64 ? b.dtype() : y.dtype();
  const Tensor left = cast(y, dtype), right = cast(b, dtype);
  if (dtype == DType::f64) return add<double>(left, right, stage);
  if (dtype == DType::f32) return add<float>(left, right, stage);
  return add<std::int64_t>(left, right, stage);
}

}  // namespace

Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               Output stage) {
  const Tensor y = W ? matmul(x, *W, Second::plain, name_of(stage)) : x;
  return b ? add_bias(y, *b, stage) : y;
}

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

std::optional<std::size_t> query_axis(Output output, const Inputs& in, const Options& options) {
  const AxisList& axes = row_of(output).axes;
  if (!has_axis(output, Axis::L)) return std::nullopt;
  if (output == Output::context && !in.packed) return options.layout == Layout::bhld ? 2 : 1;
  if (has_token_rows(output)) return in.batched && !options.batch_second ? 1 : 0;
  std::size_t axis = 0;
  for (const Axis each : axes) {
    if (each == Axis::L) break;
    axis += (each == Axis::B && in.batched) || (each == Axis::H && in.with_heads);
  }
  return axis;
}

Tensor weight_heads(Output output, const TensorMap& tensors, const Inputs& in) {
  const Tensor& W = at(tensors, *row_of(output).source);
  const std::size_t heads = has_axis(output, Axis::H) ? in.H : in.G;
  const std::size_t M = W.shape()[0], width = W.shape()[1];
  return split_heads(W.reshaped({1, M, width}), heads).reshaped({heads, M, width / heads});
}

}  // namespace attn
