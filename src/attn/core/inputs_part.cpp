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
