#include "attn/attention/inputs_part.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "attn/attention/gemm.h"
#include "attn/problem/mask.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/widened.h"

namespace attn {

Inputs part_of(const Inputs& in, const RowRanges& rows) {
  const auto append = [](const auto& from, std::size_t first, std::size_t count, auto& to) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  Inputs part = in;
  std::vector<std::size_t> chosen;
  for (const RowRange& range : rows) append(in.rows, range.first, range.count, chosen);
  part.rows = std::move(chosen);
  if (!in.key_ranges) return part;
  std::vector<kernel::KeyRange> ranges;
  for (std::size_t entry = 0; entry < in.token_positions.size(); ++entry)
    for (const RowRange& range : rows)
      append(*in.key_ranges, entry * in.rows.size() + range.first, range.count, ranges);
  part.key_ranges = std::move(ranges);
  return part;
}

Tensor sliced(const Tensor& tensor, std::size_t axis, std::size_t first, std::size_t count) {
  Shape shape = tensor.shape();
  const std::size_t length = shape[axis];
  if (count == length) return tensor;
  if (const Tensor* const narrow = tensor.narrow())
    return widened(sliced(narrow->reshaped(shape), axis, first, count), tensor.dtype());
  std::size_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  const std::size_t inner = element_count(shape) / std::max<std::size_t>(1, outer * length);
  shape[axis] = count;
  if (outer == 1) return tensor.reshaped({length, inner}).range(first, count).reshaped(shape);
  Tensor slice(tensor.dtype(), shape);
  const std::size_t bytes = inner * size_of(tensor.dtype());
  for (std::size_t i = 0; i < outer; ++i)
    std::copy_n(tensor.raw() + (i * length + first) * bytes, count * bytes,
                slice.mutable_raw() + i * count * bytes);
  return slice;
}

namespace {

/// Query heads `first` to first + heads, which share key/value head g.
Inputs of_heads(const Inputs& in, std::size_t b, std::size_t g, std::size_t first,
                std::size_t heads) {
  Inputs group = in;
  for (const InputRow& row : kInputs) {
    std::optional<Tensor>& tensor = group[row.input];
    if (!tensor) continue;
    AxisList axes = row.axes;
    if (row.input == Input::key_mask) axes = {Axis::B, Axis::H, Axis::L, Axis::S};
    if (row.input == Input::bias_K || row.input == Input::bias_V)
      axes = {Axis::B, Axis::G, Axis::N, Axis::D};
    for (std::size_t i = 0; i < axes.size() && axes.size() == tensor->rank(); ++i) {
      if (tensor->shape()[i] == 1) continue;  // shared
      if (axes[i] == Axis::B) tensor = sliced(*tensor, i, b, 1);
      if (axes[i] == Axis::H) tensor = sliced(*tensor, i, first, heads);
      if (axes[i] == Axis::G) tensor = sliced(*tensor, i, g, 1);
    }
  }
  group.first_item += b, group.first_head += first;
  if (in.token_positions.size() > 1) {
    group.token_positions = {in.token_positions[b]};
    if (in.key_ranges) {
      const auto from = in.key_ranges->begin() + static_cast<std::ptrdiff_t>(b * in.rows.size());
      group.key_ranges = std::vector(from, from + static_cast<std::ptrdiff_t>(in.rows.size()));
    }
  }
  group.B = 1, group.H = heads, group.G = 1;
  return group;
}

}  // namespace

Inputs group_of(const Inputs& in, std::size_t b, std::size_t g) {
  const std::size_t heads = in.H / in.G;
  return of_heads(in, b, g, g * heads, heads);
}

Inputs head_of(const Inputs& in, std::size_t b, std::size_t h) {
  return of_heads(in, b, h / (in.H / in.G), h, 1);
}

KeySpan seen_keys(const Inputs& in) {
  if (!in.key_ranges || in.E > 0 || in.options.empty_rows == EmptyRows::uniform) return {0, in.S};
  const bool has_numbers = in[Input::alibi_slopes] || in[Input::relative_bias] ||
                           in[Input::key_indices] || !in.options.bias_rule.empty();
  std::int64_t first = has_numbers ? 0 : static_cast<std::int64_t>(in.S), end = 0;
  for (const kernel::KeyRange& range : *in.key_ranges) {
    if (range.begin >= range.end) continue;
    first = std::min(first, range.begin), end = std::max(end, range.end);
  }
  if (end == 0) return {0, std::min<std::size_t>(1, in.S)};
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)};
}

Inputs with_keys(const Inputs& in, const KeySpan& keys) {
  if (keys.count == in.S) return in;
  Inputs part = in;
  part.S = keys.count;
  part.P = std::min(in.P - std::min(in.P, keys.first), keys.count), part.N = keys.count - part.P;
  if (part.key_ranges)
    for (kernel::KeyRange& range : part.key_ranges->own()) {
      const auto first = static_cast<std::int64_t>(keys.first);
      const auto moved = [&](std::int64_t key) {
        return std::clamp(key - first, std::int64_t{0}, static_cast<std::int64_t>(keys.count));
      };
      range.begin = moved(range.begin), range.end = moved(range.end), range.center -= first;
    }
  for (const Input input :
       {Input::mask, Input::bias, Input::key_mask, Input::dropout_mask, Input::grad_weights})
    if (in[input] && in[input]->shape()[3] != 1)
      part[input] = sliced(*in[input], 3, keys.first, keys.count);
  return part;
}

Tensor matrix_of(const Tensor& tensor, std::size_t b, std::size_t h) {
  const Shape& shape = tensor.shape();
  return sliced(sliced(tensor, 0, shape[0] == 1 ? 0 : b, 1), 1, shape[1] == 1 ? 0 : h, 1);
}

std::size_t rows_at_a_time(const Inputs& in, std::size_t most_scores) {
  const std::size_t of_row = std::max<std::size_t>(1, saturating_product({in.B, in.H, in.S}));
  const std::size_t most = std::max<std::size_t>(1, most_scores / of_row);
  return most < kProductRows ? std::bit_floor(most) : most / kProductRows * kProductRows;
}

std::size_t reference_rows_at_a_time(const Inputs& in, const OutputSet& outputs) {
  const bool is_by_row =
      in.options.softmax_axis == SoftmaxAxis::keys && !outputs.contains(Output::key_weights);
  const std::size_t rows = in.rows.size();
  return is_by_row ? std::min(rows, rows_at_a_time(in, kMostReferenceScores)) : rows;
}

void put_part(const Tensor& part, std::size_t axis, std::size_t first, std::size_t rows,
              Tensor& whole) {
  Shape shape = part.shape();
  shape[axis] = rows;
  if (first == 0) whole = Tensor(part.dtype(), shape);
  std::size_t outer = 1, inner = size_of(part.dtype());
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::size_t bytes = part.shape()[axis] * inner;
  for (std::size_t i = 0; bytes > 0 && i < outer; ++i)
    std::memcpy(whole.mutable_raw() + (i * rows + first) * inner, part.raw() + i * bytes, bytes);
}

}  // namespace attn
