#include "attn/core/inputs_part.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "attn/core/gemm.h"
#include "attn/core/mask.h"
#include "attn/core/plan.h"

namespace attn {

Inputs part_of(const Inputs& in, const RowRanges& rows) {
  Inputs part = in;
  part.rows.clear();
  for (const RowRange& range : rows) {
    const auto first = in.rows.begin() + static_cast<std::ptrdiff_t>(range.first);
    part.rows.insert(part.rows.end(), first, first + static_cast<std::ptrdiff_t>(range.count));
  }
  // Without ranges for all rows, options by distance use the reference path.
  if (in.key_ranges) part.key_ranges = key_ranges(part);
  return part;
}

Tensor heads_of(const Tensor& tensor, std::size_t b, std::size_t first, std::size_t count) {
  const Tensor heads = tensor.at(b).range(first, count);
  Shape shape = tensor.shape();
  shape[0] = 1, shape[1] = count;
  return heads.reshaped(shape);
}

namespace {

/// heads_of() for a tensor whose first two axes may have length 1, for all items or heads.
void take_heads(std::optional<Tensor>& tensor, std::size_t b, std::size_t first,
                std::size_t count) {
  if (!tensor) return;
  const bool is_shared = tensor->shape()[1] == 1;
  tensor = heads_of(*tensor, tensor->shape()[0] == 1 ? 0 : b, is_shared ? 0 : first,
                    is_shared ? 1 : count);
}

/// (buckets, H) -> (buckets, count).
Tensor columns_of(const Tensor& table, std::size_t first, std::size_t count) {
  const std::size_t H = table.shape()[1], bytes = count * size_of(table.dtype());
  Tensor columns(table.dtype(), {table.shape()[0], count});
  for (std::size_t i = 0; i < table.shape()[0]; ++i)
    std::memcpy(columns.mutable_raw() + i * bytes,
                table.raw() + (i * H + first) * size_of(table.dtype()), bytes);
  return columns;
}

}  // namespace

Inputs group_of(const Inputs& in, std::size_t b, std::size_t g) {
  const std::size_t heads = in.H / in.G, first = g * heads;
  Inputs group = in;
  for (const Input input :
       {Input::bias, Input::mask, Input::key_mask, Input::dropout_mask, Input::alibi_slopes})
    take_heads(group[input], b, first, heads);
  for (const Input input : {Input::bias_K, Input::bias_V}) take_heads(group[input], b, g, 1);
  for (const Input input : {Input::sinks, Input::head_scale})
    if (group[input]) group[input] = group[input]->range(first, heads);
  if (group[Input::relative_bias])
    group[Input::relative_bias] = columns_of(*group[Input::relative_bias], first, heads);
  if (in.token_positions.size() > 1) {
    group.token_positions = {in.token_positions[b]};
    if (in.key_ranges) {
      const auto from = in.key_ranges->begin() + static_cast<std::ptrdiff_t>(b * in.rows.size());
      group.key_ranges.emplace(from, from + static_cast<std::ptrdiff_t>(in.rows.size()));
    }
  }
  group.B = 1, group.H = heads, group.G = 1;
  return group;
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
