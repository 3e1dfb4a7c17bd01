// Products of weights and values. NaN and infinite values affect only rows that see them.
#pragma once

#include "attn/kernel/amx_values-inl.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/softmax-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// The values of one key block in a layout that the micro-kernel reads.
template <class T>
struct ValueBlock {
  const T* values = nullptr;
  std::size_t keys = 0,
              at = 0;   ///< packed: panels are `keys` keys long, and the block starts at key `at`
  std::size_t row = 0;  ///< in place: elements from one row to the next; 0: packed
  bool non_finite = false;  ///< packed: zeros replace NaN and infinite values
  bool checked = true;      ///< in place: all are known to be finite
  bool by_row = false;      ///< read row by row by add_values(); `values` is null
  bool tiles = false;  ///< as in KeyValues; `keys` are those of the block, which starts at key `at`

  const T* from(std::size_t key, std::size_t column, std::size_t width) const {
    return row != 0 ? values + key * row + column : values + column * keys + (at + key) * width;
  }
};

/// Packs values in tiles or not (see Kernels).
template <class T>
ValueKind pack_values_for(const Matrix& v, bool tiles, std::size_t first, std::size_t count,
                          std::size_t keys, std::size_t Dv, T* widened, T* packed) {
  if constexpr (kMultipliesPairs<T>) {
    if (tiles)
      return pack_values_in_tiles(v, first, count, Dv, widened,
                                  packed + packed_value_size(first, round_up(Dv, kLanes<T>), true));
  }
  return pack_values(v, first, count, keys, Dv, widened, packed);
}

/// packed_values() in tiles.
template <class T>
ValueBlock<T> values_in_tiles(const QueryBlock<T>& block, std::size_t number) {
  const AttentionProblem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, count = HWY_MIN(kKeyBlock, p.S - from);
  ValueBlock<T> values{.keys = count, .tiles = true};
  ValueKind kind = ValueKind::packed;
  if (block.kv.values != nullptr) {
    kind = block.kv.kinds[number];
    values.values = block.kv.values + packed_value_size(from, round_up(p.Dv, kLanes<T>), true);
  } else if constexpr (kMultipliesPairs<T>) {
    kind = pack_values_in_tiles(block.kv.v, from, count, p.Dv, block.scratch.widened,
                                block.scratch.value_block);
    values.values = block.scratch.value_block;
  }
  values.non_finite = kind == ValueKind::non_finite;
  return values;
}

template <class T>
ValueBlock<T> packed_values(const QueryBlock<T>& block, std::size_t number) {
  if (block.kv.value_tiles) return values_in_tiles(block, number);
  const AttentionProblem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, count = HWY_MIN(kKeyBlock, p.S - from);
  if (block.kv.values != nullptr)
    return {block.kv.values, p.S, from, 0, block.kv.kinds[number] == ValueKind::non_finite};
  T* packed = block.scratch.value_block;
  const ValueKind kind =
      pack_all_values(block.kv.v, from, count, p.Dv, block.scratch.widened, packed, kKeyBlock, 0);
  return {packed, kKeyBlock, 0, 0, kind == ValueKind::non_finite};
}

/// The values of key block `number`: in place if pack_values() did not copy them. One group of rows
/// reads whole vectors row by row, which is faster than packing.
template <class T>
ValueBlock<T> value_block(const QueryBlock<T>& block, std::size_t number) {
  const AttentionProblem<T>& p = block.problem;
  const bool unpacked = block.kv.values == nullptr;
  const bool tiles = block.kv.value_tiles;
  if (unpacked && block.rows <= block.group_rows && (tiles || p.Dv % kLanes<T> == 0)) {
    const std::size_t from = number * kKeyBlock;
    return {.keys = HWY_MIN(kKeyBlock, p.S - from),
            .at = from,
            .row = p.Dv,
            .checked = false,
            .by_row = true,
            .tiles = tiles};
  }
  if (unpacked || block.kv.kinds[number] != ValueKind::in_place)
    return packed_values(block, number);
  return {.values = Rows<T>(block.kv.v, p.Dv).at(number * kKeyBlock, nullptr), .row = p.Dv};
}

/// Adds the NaN and infinite values of `keys`, which are packed as zeros, to rows that see them.
template <class T>
void add_non_finite(const RowGroup<T>& group, const Matrix& v, Span keys, std::int64_t origin,
                    const Sums<T>& to) {
  const AttentionProblem<T>& p = group.p;
  const Scratch<T>& s = group.s;
  for (std::int64_t key = keys.first; key < keys.last; ++key)
    for (std::size_t column = 0; column < p.Dv; ++column) {
      const auto value = element<T>(v, static_cast<std::size_t>(key), column);
      if (is_finite(value)) continue;
      for (std::size_t r = 0; r < group.rows; ++r)
        if (sees(p, s.row[group.i + r], static_cast<std::size_t>(key)))
          to.out[r * to.stride + column] +=
              group.scores[static_cast<std::int64_t>(r * s.score_stride) + key - origin] * value;
    }
}

/// The weights that softmax() stored: those of the keys in `span`, where column 0 is key `origin`.
struct Weights {
  Span span;
  std::int64_t origin;
};

/// Adds weights * values to some rows of `to`, for all Dv columns. product.values is ignored.
template <class T>
void multiply_values(const TileRows& rows, const ValueBlock<T>& values, std::size_t Dv,
                     ValueProduct<T> product, const Sums<T>& to) {
  // Panels have a fixed width; values in place are read in the widest tiles.
  const bool in_place = values.row != 0;
  // Slices of parts cost more than they save if only one tile uses them.
  const bool several = rows.last - rows.first > kTileRows || kSumDepth<T> <= kKeysOfSlice;
  const bool whole_panels = kPanelsFirst && rows.of_tile() == kTileRows && several;
  const std::size_t widest = in_place ? max_vectors(rows.of_tile()) * kLanes<T> : kPanel<T>;
  for (std::size_t column = 0, width; column < Dv; column += width) {
    width = round_up(HWY_MIN(widest, Dv - column), kLanes<T>);
    product.values = values.from(0, column, width);
    product.values_stride = in_place ? values.row : width;
    const Sums<T> sums{to.out + column, to.stride, to.keep, to.add};
    if (whole_panels && width == kPanel<T>) {
      const std::size_t left = round_up(Dv - column, kLanes<T>);
      const std::size_t panels = HWY_MIN(kPanelsAtOnce, left / width);
      value_panels<T>(rows, panels, in_place ? width : values.keys * width, product, sums);
      width *= panels;
    } else {
      value_tiles<T>(rows, width / kLanes<T>, product, sums);
    }
  }
}

/// multiply_values() for any rows and values that are not by_row.
template <class T>
void multiply_packed_values(std::size_t rows, const ValueBlock<T>& values, std::size_t Dv,
                            ValueProduct<T> product, const Sums<T>& to) {
  if constexpr (kMultipliesPairs<T>) {
    if (values.tiles) {
      product.values = values.values;
      return multiply_packed_tiles(rows, product, values.keys, Dv, to);
    }
  }
  in_tiles(rows, [&](const TileRows& some) { multiply_values(some, values, Dv, product, to); });
}

/// add_values() for values by_row: each part of kSumDepth keys is copied to the level 1 cache and
/// added to the total, as in sum_parts().
template <class T>
void add_value_rows(const RowGroup<T>& group, const Matrix& v, Span keys,
                    const ValueProduct<T>& product, const Sums<T>& to, T* copy) {
  const Tag<T> d;
  const std::size_t rows = group.rows, Dv = group.p.Dv, stride = group.s.state.stride;
  const Rows<T> source(v, Dv);
  T* const total = copy + kSumDepth<T> * Dv;
  HWY_ALIGN T ones[kGroupRows];
  fill(ones, kGroupRows, T(1));
  const std::size_t end = product.to, block = static_cast<std::size_t>(keys.first) - product.from;
  const ValueBlock<T> values{copy, 0, 0, Dv, false, false};
  for (std::size_t part = product.from, next; part < end; part = next) {
    next = HWY_MIN(end, round_up(part + 1, kSumDepth<T>));
    copy_rows(source, block + part, next - part, group.p.S, Dv, copy);
    const Sums<T> sums{total, stride, part == product.from ? nullptr : ones, ones};
    ValueProduct<T> of_part = product;
    of_part.from = 0, of_part.to = next - part, of_part.weights += part;
    in_tiles(rows, [&](const TileRows& some) { multiply_values(some, values, Dv, of_part, sums); });
  }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < Dv; j += kLanes<T>) {
      T* const out = to.out + r * to.stride + j;
      const Vec<T> added = hn::Mul(hn::LoadU(d, total + r * stride + j), hn::Set(d, to.add[r]));
      hn::StoreU(to.keep ? hn::MulAdd(hn::LoadU(d, out), hn::Set(d, to.keep[r]), added)
                         : hn::Add(added, hn::Zero(d)),
                 d, out);
    }
}

/// Adds weights * V for the keys of one block.
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
  product.weights = group.scores + (block - weights.origin);
  product.weights_stride = group.s.score_stride;
  if (values.by_row) {
    if constexpr (kMultipliesPairs<T>)
      if (values.tiles)
        return multiply_stored_values(rows, product, v, values.at, values.keys, Dv, to,
                                      group.s.widened);
    const Rows<T> source(v, Dv);
    const std::int64_t step = source.in_place() && !source.is_table() ? source.step(0, 0) : 0;
    if (rows >= kTileRows || step <= 0 || step > most_step_in_place(rows))
      return add_value_rows(group, v, keys, product, to, group.s.value_block);
    ValueBlock<T> in_place{.row = static_cast<std::size_t>(step) / sizeof(T)};
    in_place.values = source.at(static_cast<std::size_t>(block), nullptr);
    product.ahead = kBytesAhead / sizeof(T);
    return multiply_values({0, rows}, in_place, Dv, product, to);
  }
  multiply_packed_values(rows, values, Dv, product, to);
  if (values.non_finite) add_non_finite(group, v, keys, weights.origin, to);
}

/// add_values() to the softmax state for any values. Unchecked values in place may be NaN or
/// infinite and affect rows to which they are hidden; in this case the product is repeated with
/// packed values.
template <class T>
void add_any_values(const QueryBlock<T>& block, const RowGroup<T>& group, std::size_t number,
                    const ValueBlock<T>& values, const Weights& weights,
                    const Factors<T>& factors) {
  const Scratch<T>& s = block.scratch;
  T* sums = s.state.values + group.i * s.state.stride;
  const Sums<T> to{sums, s.state.stride, factors.keep.of, factors.add.of};
  if (values.row == 0 || values.checked) return add_values(group, values, block.kv.v, weights, to);
  const std::size_t count = group.rows * s.state.stride;
  copy_row(sums, count, count, s.saved);
  add_values(group, values, block.kv.v, weights, to);
  if (all_finite(sums, count)) return;
  copy_row(s.saved, count, count, sums);
  add_values(group, packed_values(block, number), block.kv.v, weights, to);
}

}  // namespace attn::kernel::HWY_NAMESPACE
