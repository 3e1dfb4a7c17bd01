#include "attn/core/row_block.h"

#include <cstring>

namespace attn {

RowBlock rows_of(const Tensor& tensor) {
  const std::size_t columns = tensor.rank() == 0 ? 1 : tensor.shape().back();
  return {.first = 0,
          .count = columns == 0 ? 0 : tensor.size() / columns,
          .columns = columns,
          .dtype = tensor.dtype(),
          .data = tensor.raw(),
          .stride = columns * size_of(tensor.dtype())};
}

Tensor copied(const RowBlock& block) {
  Tensor rows(block.dtype, {block.count, block.columns});
  const std::size_t bytes = block.columns * size_of(block.dtype);
  std::byte* const to = rows.mutable_raw();
  for (std::size_t i = 0; i < block.count && bytes > 0; ++i)
    std::memcpy(to + i * bytes, block.row(i), bytes);
  return rows;
}

RowBlock in_place_of(const RowBlock& block, const Tensor& rows) {
  RowBlock result = rows_of(rows);
  result.first = block.first;
  result.may_hold_nan = block.may_hold_nan;
  return result;
}

RowBlock converted(const RowBlock& block, DType dtype, Tensor& kept) {
  if (block.dtype == dtype) return block;
  kept = cast(copied(block), dtype);
  return in_place_of(block, kept);
}

}  // namespace attn
