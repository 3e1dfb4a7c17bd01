// Weights times values, whatever the values are: NaN and infinity count only where they are seen.
#pragma once

#include "attn/kernel/pack-inl.h"
#include "attn/kernel/softmax-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// The values of one key block as the micro-kernel reads them.
template <class T>
struct ValueBlock {
  const T* values = nullptr;
  std::size_t keys = 0,
              at = 0;    ///< packed: panels are `keys` keys long, and the block starts at key `at`
  std::size_t row = 0;   ///< in place: elements from one row to the next; 0: packed
  bool tainted = false;  ///< packed: some are NaN or infinite, and zeros stand for them
  bool checked = true;   ///< in place: all are finite

  const T* from(std::size_t key, std::size_t column, std::size_t width) const {
    return row != 0 ? values + key * row + column : values + column * keys + (at + key) * width;
  }
};

template <class T>
ValueBlock<T> packed_values(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, count = HWY_MIN(kKeyBlock, p.S - from);
  if (block.kv.values != nullptr)
    return {block.kv.values, p.S, from, 0, block.kv.kinds[number] == ValueKind::tainted};
  T* packed = block.scratch.value_block;
  const ValueKind kind =
      pack_all_values(block.kv.v, from, count, p.Dv, block.scratch.widened, packed, kKeyBlock, 0);
  return {packed, kKeyBlock, 0, 0, kind == ValueKind::tainted};
}

/// Those of key block `number`: in place where they have been left there, or where one tile of rows
/// is all that is to use them, and whole vectors can be read.
template <class T>
ValueBlock<T> value_block(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const Rows<T> rows(block.kv.v, p.Dv);
  const bool left = block.kv.values != nullptr && block.kv.kinds[number] == ValueKind::in_place;
  const bool few = block.kv.values == nullptr && block.rows <= kTileRows && rows.in_place() &&
                   block.kv.v.row > 0 && p.Dv % kLanes<T> == 0;
  if (!left && !few) return packed_values(block, number);
  const std::size_t first = number * kKeyBlock;
  if (few) prefetch_rows(rows, first, HWY_MIN(kRowsAhead, p.S - first), p.Dv);
  return {rows.at(first, nullptr), 0, 0, static_cast<std::size_t>(block.kv.v.row), false, left};
}

/// What the zeros that stand for NaN and infinite values in `keys` should have added.
template <class T>
void add_tainted(const RowGroup<T>& group, const Matrix& v, Span keys, std::int64_t origin,
                 const Sums<T>& to) {
  const Problem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  for (std::int64_t key = keys.first; key < keys.last; ++key)
    for (std::size_t column = 0; column < p.Dv; ++column) {
      const auto value = static_cast<T>(element(v, static_cast<std::size_t>(key), column));
      if (is_finite(value)) continue;
      for (std::size_t r = 0; r < group.rows; ++r)
        if (sees(p, s.row[group.i + r], static_cast<std::size_t>(key)))
          to.out[r * to.stride + column] +=
              group.strip[static_cast<std::int64_t>(r * s.strip_stride) + key - origin] * value;
    }
}

/// What softmax() left in a strip: weights of the keys in `span`, column 0 being key `origin`.
struct Weights {
  Span span;
  std::int64_t origin;
};

/// Adds strip * V over keys of one block of values.
template <class T>
HWY_NOINLINE void add_values(const RowGroup<T>& group, const ValueBlock<T>& values, const Matrix& v,
                             const Weights& weights, const Sums<T>& to) {
  const std::size_t rows = group.rows, Dv = group.p.Dv;
  const Span keys = group.reached(weights.span);
  if (keys.empty()) return;
  const std::int64_t block = round_down(keys.first, kKeyBlock);
  ValueProduct<T> product{};
  product.from = static_cast<std::size_t>(keys.first - block);
  product.to = static_cast<std::size_t>(keys.last - block);
  product.weights = group.strip + (block - weights.origin);
  product.weights_stride = group.s.strip_stride;
  product.ahead = !values.checked;
  // Panels are of a width; rows in place are best read as far as there is room.
  const std::size_t widest = values.row != 0 ? most_vectors(rows) * kLanes<T> : kPanel<T>;
  for (std::size_t column = 0; column < Dv; column += widest) {
    const std::size_t width = round_up(HWY_MIN(widest, Dv - column), kLanes<T>);
    product.values = values.from(0, column, width);
    product.values_stride = values.row != 0 ? values.row : width;
    add_product<T>(rows, width / kLanes<T>, product, {to.out + column, to.stride, to.keep, to.add});
  }
  if (values.tainted) add_tainted(group, v, keys, weights.origin, to);
}

/// add_values() to the partial, whatever the values. Those read in place unchecked may hold NaN and
/// infinity, and leave such behind even where they are hidden: then all is done again with packed
/// ones.
template <class T>
void add_any_values(const RowBlock<T>& block, const RowGroup<T>& group, std::size_t number,
                    const ValueBlock<T>& values, const Weights& weights,
                    const Factors<T>& factors) {
  const Scratch<T>& s = block.scratch;
  T* sums = s.partial.values + group.i * s.partial.stride;
  const Sums<T> to{sums, s.partial.stride, factors.keep.of, factors.add.of};
  if (values.row == 0 || values.checked) return add_values(group, values, block.kv.v, weights, to);
  const std::size_t count = group.rows * s.partial.stride;
  copy_row(sums, count, count, s.saved);
  add_values(group, values, block.kv.v, weights, to);
  if (all_finite(sums, count)) return;
  copy_row(s.saved, count, count, sums);
  add_values(group, packed_values(block, number), block.kv.v, weights, to);
}

}  // namespace attn::kernel::HWY_NAMESPACE
