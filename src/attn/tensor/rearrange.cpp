#include "attn/tensor/rearrange.h"

#include <cstring>
#include <optional>
#include <utility>

#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/widened.h"

namespace attn {

Tensor swap_middle_axes(Tensor tensor) {
  const Shape& from = tensor.shape();
  if (from[1] <= 1 || from[2] <= 1)  // the order in memory is the same
    return std::move(tensor).reshaped({from[0], from[2], from[1], from[3]});
  if (const Tensor* const narrow = tensor.narrow())
    return widened(swap_middle_axes(narrow->reshaped(from)), tensor.dtype());
  if (const GatheredRows* rows = tensor.rows(); rows && from == rows->shape())
    return gathered_tensor(rows->table(), tensor.dtype(), !rows->by_head(), rows->is_computed());
  if (tensor.rows() != nullptr)
    return rows_from(tensor, {from[0], from[2], from[1], from[3]}, [&](std::size_t row) {
      const std::size_t b = row % from[1], c = row / from[1] % from[2];
      return (row / (from[1] * from[2]) * from[1] + b) * from[2] + c;
    });
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

Tensor split_heads(Tensor packed, std::size_t heads) {
  const Shape& shape = packed.shape();
  return swap_middle_axes(
      std::move(packed).reshaped({shape[0], shape[1], heads, shape[2] / heads}));
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

Tensor swap_batch_and_heads(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return swap_first_axes(tensor.reshaped({shape[0], shape[1], shape[2] * shape[3]}))
      .reshaped({shape[1], shape[0], shape[2], shape[3]});
}

Tensor take_rows(const Tensor& tensor, const std::vector<std::size_t>& rows) {
  Shape shape = tensor.shape();
  if (const Tensor* const narrow = tensor.narrow())
    return widened(take_rows(narrow->reshaped(shape), rows), tensor.dtype());
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
  if (const Tensor* const narrow = tensor.narrow())
    return widened(repeated(narrow->reshaped(shape), count), tensor.dtype());
  shape[0] = count;
  Tensor all(tensor.dtype(), shape);
  for (std::size_t i = 0; i < count && tensor.bytes() > 0; ++i)
    std::memcpy(all.mutable_raw() + i * tensor.bytes(), tensor.raw(), tensor.bytes());
  return all;
}

namespace {

/// The same numbers in this type if they are stored in it, or are few and exact in it.
std::optional<Tensor> stored_in(const Tensor& tensor, DType dtype) {
  constexpr std::size_t kFewBytes = 131072;
  if (tensor.stored().dtype() == dtype) return tensor.stored().reshaped(tensor.shape());
  if (tensor.narrow() || tensor.rows() || tensor.bytes() > kFewBytes) return std::nullopt;
  Tensor rounded = cast(tensor, dtype);
  const Tensor again = cast(rounded, tensor.dtype());
  const bool is_exact =
      tensor.size() == 0 || std::memcmp(again.raw(), tensor.raw(), tensor.bytes()) == 0;
  return is_exact ? std::optional(std::move(rounded)) : std::nullopt;
}

}  // namespace

Tensor append_rows(const Tensor& before, const Tensor& behind) {
  if (before.narrow() && before.dtype() == behind.dtype())
    if (const auto same = stored_in(behind, before.stored().dtype()))
      return widened(append_rows(before.stored().reshaped(before.shape()), *same), before.dtype());
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

Tensor row_range(const Tensor& x, std::size_t first, std::size_t count) {
  std::vector<std::size_t> rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i] = first + i;
  return take_rows(x, rows);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor sums(DType::f64, shape);
  const auto out = sums.mutable_data<double>();
  const auto from = x.data<double>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t rest = i, to = 0, step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      const std::size_t length = x.shape()[axis];
      if (shape[axis] != 1) to += rest % length * step;
      rest /= length;
      step *= shape[axis];
    }
    out[to] += from[i];
  }
  return sums;
}

}  // namespace attn
