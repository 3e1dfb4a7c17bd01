// Products of weights and values. NaN and infinite values affect only rows that see them.
#pragma once

#include "attn/kernel/amx_values-inl.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/softmax-inl.h"
#include "attn/kernel/tile-inl.h"
#include "attn/kernel/value_pairs-inl.h"
#include "attn/kernel/value_rows-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// The values of one key block in a layout that the micro-kernel reads.
template <class T>
struct ValueBlock {
  const T* values = nullptr;
  /// Packed: panels are `keys` keys long, and the block starts at key `at`, both counted in pairs
  /// if values are. In tiles and by_row: those of the block.
  std::size_t keys = 0, at = 0;
  std::size_t row = 0;      ///< in place: elements from one row to the next; 0: packed
  bool non_finite = false;  ///< packed: zeros replace NaN and infinite values
  bool checked = true;      ///< in place: all are known to be finite
  bool by_row = false;      ///< read row by row by add_values(); `values` is null
  FactorForm factors = FactorForm::numbers;

  const T* from(std::size_t key, std::size_t column, std::size_t width) const {
    return row != 0 ? values + key * row + column : values + column * keys + (at + key) * width;
  }
};

/// Packs values [first, first + count) from key `at` on into memory for `keys` keys.
template <class T>
ValueKind pack_factors(const Matrix& v, FactorForm factors, std::size_t first, std::size_t count,
                       std::size_t Dv, T* widened, T* packed, std::size_t keys, std::size_t at) {
  if constexpr (kMultipliesPairs<T>) {
    if (factors == FactorForm::tiles)
      return pack_values_in_tiles(v, first, count, Dv, widened,
                                  packed + packed_value_size(at, round_up(Dv, kLanes<T>), factors));
    if (factors == FactorForm::pairs)
      return pack_value_pairs(v, first, count, Dv, widened, packed, depth_of(factors, keys),
                              depth_of(factors, at));
  }
  return pack_all_values(v, factors, first, count, Dv, widened, packed, keys, at);
}

/// Packs values unless they can be read in place (Kernels::pack_values).
template <class T>
ValueKind pack_values(const Matrix& v, FactorForm factors, std::size_t first, std::size_t count,
                      std::size_t keys, std::size_t Dv, T* widened, T* packed) {
  if (factors == FactorForm::numbers && may_stay_in_place<T>(v, first, count, keys, Dv))
    return ValueKind::in_place;
  return pack_factors(v, factors, first, count, Dv, widened, packed, keys, first);
}

template <class T>
ValueBlock<T> packed_values(const QueryBlock<T>& block, std::size_t number) {
  const AttentionProblem<T>& p = block.problem;
  const FactorForm factors = block.kv.value_factors;
  const std::size_t from = number * kKeyBlock, count = HWY_MIN(kKeyBlock, p.S - from);
  const bool is_packed = block.kv.values != nullptr, in_tiles = factors == FactorForm::tiles;
  const Scratch<T>& s = block.scratch;
  const ValueKind kind = is_packed ? block.kv.kinds[number]
                                   : pack_factors(block.kv.v, factors, from, count, p.Dv, s.widened,
                                                  s.value_block, kKeyBlock, 0);
  ValueBlock<T> values{.values = is_packed ? block.kv.values : s.value_block,
                       .keys = depth_of(factors, is_packed ? p.S : kKeyBlock),
                       .at = is_packed ? depth_of(factors, from) : 0,
                       .non_finite = kind == ValueKind::non_finite,
                       .factors = factors};
  if (in_tiles) {
    values.keys = count;
    if (is_packed)
      values.values += packed_value_size(from, round_up(p.Dv, kLanes<T>), FactorForm::tiles);
  }
  return values;
}

/// The values of key block `number`: in place if pack_values() did not copy them. One group of rows
/// reads whole vectors row by row, which is faster than packing.
template <class T>
ValueBlock<T> value_block(const QueryBlock<T>& block, std::size_t number) {
  const AttentionProblem<T>& p = block.problem;
  const bool unpacked = block.kv.values == nullptr;
  const FactorForm factors = block.kv.value_factors;
  if (unpacked && block.rows <= block.group_rows &&
      (factors == FactorForm::tiles || p.Dv % kLanes<T> == 0)) {
    const std::size_t from = number * kKeyBlock;
    return {.keys = HWY_MIN(kKeyBlock, p.S - from),
            .at = from,
            .row = p.Dv,
            .checked = false,
            .by_row = true,
            .factors = factors};
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
      const T value = value_factor(p, v, static_cast<std::size_t>(key), column);
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

/// value_tiles() for any factors but tiles.
template <class T>
HWY_INLINE void add_products_of_values(FactorForm factors, const TileRows& rows,
                                       std::size_t vectors, const ValueProduct<T>& product,
                                       const Sums<T>& to) {
  if constexpr (kMultipliesPairs<T>)
    if (factors == FactorForm::pairs)
      return value_tiles<T, Term::pairs>(rows, vectors, product, to);
  value_tiles<T>(rows, vectors, product, to);
}

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
      add_products_of_values(values.factors, rows, width / kLanes<T>, product, sums);
    }
  }
}

/// multiply_values() for any rows and values that are not by_row. `rounds`: weights in tiles are
/// rounded; those of other forms already are, if necessary.
template <class T>
void multiply_packed_values(std::size_t rows, const ValueBlock<T>& values, std::size_t Dv,
                            bool rounds, ValueProduct<T> product, const Sums<T>& to) {
  if constexpr (kMultipliesPairs<T>) {
    if (values.factors == FactorForm::tiles) {
      product.values = values.values;
      return multiply_packed_tiles(rounds, rows, product, values.keys, Dv, to);
    }
  }
  in_tiles(rows, [&](const TileRows& some) { multiply_values(some, values, Dv, product, to); });
}

/// Copies values [first, first + count), in whole vectors, as factors of products, and prefetches
/// as many that follow.
template <class T>
void copy_values(const Matrix& v, FactorForm factors, std::size_t first, std::size_t count,
                 std::size_t all, std::size_t Dv, T* widened, T* to) {
  if constexpr (kMultipliesPairs<T>) {
    if (factors == FactorForm::pairs)
      return copy_value_pairs(v, first, count, all, Dv, widened, to);
  }
  copy_rows(Rows<T>(v, Dv), first, count, all, Dv, to);
  if (factors == FactorForm::rounded) round_to_bfloat16(to, count * Dv);
}

/// Adds totals (rows, stride) times the factors of `to`.
template <class T>
void add_totals(std::size_t rows, std::size_t Dv, const T* total, std::size_t stride,
                const Sums<T>& to) {
  const Tag<T> d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < Dv; j += kLanes<T>) {
      T* const out = to.out + r * to.stride + j;
      const Vec<T> added = hn::Mul(hn::LoadU(d, total + r * stride + j), hn::Set(d, to.add[r]));
      hn::StoreU(to.keep ? hn::MulAdd(hn::LoadU(d, out), hn::Set(d, to.keep[r]), added)
                         : hn::Add(added, hn::Zero(d)),
                 d, out);
    }
}

/// add_values() for values by_row: each part of kSumDepth terms is copied to the level 1 cache and
/// added to the total, as in sum_parts().
template <class T>
void add_copied_values(const RowGroup<T>& group, const ValueBlock<T>& values, const Matrix& v,
                       const ValueProduct<T>& product, const Sums<T>& to) {
  const Scratch<T>& s = group.s;
  const std::size_t rows = group.rows, Dv = group.p.Dv, stride = s.state.stride;
  T *const copy = s.value_block, *const total = copy + kSumDepth<T> * Dv;
  HWY_ALIGN T ones[kGroupRows];
  fill(ones, kGroupRows, T(1));
  const std::size_t keys_of_term = are_pairs(values.factors) ? 2 : 1;
  const ValueBlock<T> copied{.values = copy, .row = Dv, .factors = values.factors};
  for (std::size_t part = product.from, next; part < product.to; part = next) {
    next = HWY_MIN(product.to, round_up(part + 1, kSumDepth<T>));
    const std::size_t first = part * keys_of_term, end = HWY_MIN(next * keys_of_term, values.keys);
    copy_values(v, values.factors, values.at + first, end - first, group.p.S, Dv, s.widened, copy);
    const Sums<T> sums{total, stride, part == product.from ? nullptr : ones, ones};
    ValueProduct<T> of_part = product;
    of_part.from = 0, of_part.to = next - part, of_part.weights += part;
    in_tiles(rows, [&](const TileRows& some) { multiply_values(some, copied, Dv, of_part, sums); });
  }
  add_totals(rows, Dv, total, stride, to);
}

/// The same for values that can be read where they are, if there are few rows of weights. Returns
/// whether that is so.
template <class T>
bool add_values_in_place(const RowGroup<T>& group, const ValueBlock<T>& values, const Matrix& v,
                         const ValueProduct<T>& product, const Sums<T>& to) {
  const Rows<T> source(v, group.p.Dv);
  const std::size_t rows = group.rows, Dv = group.p.Dv, stride = group.s.state.stride;
  const std::int64_t step = source.is_table() ? 0 : source.step(0, 0);
  if (step <= 0 || step > kMostStepInPlace || Dv % kLanes<T> != 0) return false;
  T* const total = group.s.value_block;
  const std::byte* const first = source.start(values.at);
  const auto add_in = [&]<class Order>(Order) {
    return [&]<class Element>(Type<Element>) {
      const StoredValues<Element> stored{reinterpret_cast<const ElementOf<Element>*>(first),
                                         static_cast<std::size_t>(step)};
      add_stored_values<T, Element, Order>(rows, product, stored, Dv, total, stride);
    };
  };
  bool added = false;
#if ATTN_HAS_PAIRS
  if constexpr (kMultipliesPairs<T>) {
    if (values.factors == FactorForm::tiles) {
      if (rows > kMostRowsAsInTiles) return false;
      const FlushesSubnormals flush;
      added = group.p.bf16_products
                  ? with_element_as_in_tiles<true>(source, add_in(AsInTiles<1>()))
                  : with_element_as_in_tiles<false>(source, add_in(AsInTiles<kExactParts>()));
    }
  }
#endif
  if (rows < kTileRows &&
      (values.factors == FactorForm::numbers || values.factors == FactorForm::rounded))
    added = with_element(source, values.factors == FactorForm::rounded, add_in(InTurn()));
  if (added) add_totals(rows, Dv, total, stride, to);
  return added;
}

/// Replaces the weights of a product by rounded copies, or by pairs of these.
template <class T>
void round_weights(FactorForm factors, std::size_t rows, T* to, ValueProduct<T>& product) {
  const std::size_t stride = depth_of(factors, kKeyBlock);
  for (std::size_t r = 0; r < rows; ++r) {
    const T* const from = product.weights + r * product.weights_stride;
    T* const row = to + r * stride;
    if constexpr (kMultipliesPairs<T>) {
      if (factors == FactorForm::pairs) {
        const std::size_t first = product.from - product.from % 2;
        round_to_pairs(from + first, product.to - first, row + first / 2);
        if (first < product.from) std::memset(row + first / 2, 0, sizeof(T) / 2);
        continue;
      }
    }
    copy_elements(from + product.from, product.to - product.from, row + product.from);
    round_to_bfloat16(row + product.from, product.to - product.from);
  }
  product.weights = to, product.weights_stride = stride;
  if (are_pairs(factors)) product.from /= 2, product.to = (product.to + 1) / 2;
}

/// Adds weights * V for the keys of one block.
template <class T>
HWY_NOINLINE void add_values(const RowGroup<T>& group, const ValueBlock<T>& values, const Matrix& v,
                             const Weights& weights, const Sums<T>& to) {
  const std::size_t rows = group.rows, Dv = group.p.Dv;
  const bool rounds = group.p.bf16_products;
  const Span keys = group.reached(weights.span);
  if (keys.empty()) return;
  const std::int64_t block = round_down(keys.first, kKeyBlock);
  ValueProduct<T> product{};
  product.from = static_cast<std::size_t>(keys.first - block);
  product.to = static_cast<std::size_t>(keys.last - block);
  product.weights = group.scores + (block - weights.origin);
  product.weights_stride = group.s.score_stride;
  if (rounds && values.factors != FactorForm::tiles)
    round_weights(values.factors, rows, group.s.weights, product);
  if (values.by_row) {
    if (add_values_in_place(group, values, v, product, to)) return;
    if constexpr (kMultipliesPairs<T>)
      if (values.factors == FactorForm::tiles)
        return multiply_stored_values(rounds, rows, product, v, values.at, values.keys, Dv, to,
                                      group.s.widened);
    return add_copied_values(group, values, v, product, to);
  }
  multiply_packed_values(rows, values, Dv, rounds, product, to);
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
