// Softmax and values of a block of query rows: by streaming over key blocks, or on a strip of whole
// rows; both leave a partial that merge() folds and finish() writes out.
#pragma once

#include <cmath>
#include <cstring>

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/scores-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
HWY_INLINE void fill(T* out, std::size_t count, T value) {
  for (std::size_t i = 0; i < count; ++i) out[i] = value;
}

/// What stands for the maximum in score - max: any number will do where all scores are -inf.
template <class T>
HWY_INLINE T pivot(T max) {
  return max == -kInfinity<T> ? T(0) : max;
}

template <class T>
Tile reach_of(const Row<T>* row, std::size_t rows) {
  Tile tile{std::numeric_limits<std::int64_t>::max(), 0, 0,
            std::numeric_limits<std::int64_t>::max()};
  for (std::size_t r = 0; r < rows; ++r) {
    tile.all_first = greater(tile.all_first, row[r].first);
    tile.all_last = lesser(tile.all_last, row[r].last);
    if (row[r].first >= row[r].last) continue;
    tile.first = lesser(tile.first, row[r].first);
    tile.last = greater(tile.last, row[r].last);
  }
  return tile;
}

template <class T>
void begin(RowBlock<T>& block, const Results<T>& results) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  make_rows(p, results, block.first, block.rows, s.row);
  for (std::size_t i = 0; i < block.rows; ++i) {
    T* room = s.query + i * p.D;
    const T* query = Rows<T>(s.row[i].query, p.D).at(0, room);
    if (query != room) std::memcpy(room, query, p.D * sizeof(T));
  }
  for (std::size_t i = 0; i < block.rows; i += kTileRows)
    s.tile[i / kTileRows] = reach_of(s.row + i, HWY_MIN(kTileRows, block.rows - i));
  fill(s.partial.max, block.rows, -kInfinity<T>);
  fill(s.partial.sum, block.rows, T(0));
  fill(s.partial.values, block.rows * s.partial.stride, T(0));
  fill(s.running_max, block.rows * kLanes<T>, -kInfinity<T>);
}

/// row[from, to) = 2^(row - max); returns the sum. Sums run along whole panels, so that a wider
/// range around the same visible keys gives the same bytes.
template <class T>
HWY_INLINE T exponentiate(T* row, std::int64_t from, std::int64_t to, T max) {
  const Tag<T> d;
  const Vec<T> most = hn::Set(d, pivot(max));
  Vec<T> sums[kTileVectors];
  for (std::size_t j = 0; j < kTileVectors; ++j) sums[j] = hn::Zero(d);
  for (std::int64_t i = from; i < to; i += kPanel<T>)
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kTileVectors; ++j) {
      T* at = row + i + j * kLanes<T>;
      const Vec<T> e = exp2<T>(hn::Sub(hn::Load(d, at), most));
      hn::Store(e, d, at);
      sums[j] = hn::Add(sums[j], e);
    }
  for (std::size_t j = 1; j < kTileVectors; ++j) sums[0] = hn::Add(sums[0], sums[j]);
  return total<T>(sums[0]);
}

HWY_INLINE std::int64_t round_down(std::int64_t n, std::size_t unit) {
  return n - n % static_cast<std::int64_t>(unit);
}

/// A number for each row of a tile, in whole vectors.
template <class T>
struct PerRow {
  HWY_ALIGN T of[round_up(kTileRows, kLanes<T>)] = {};
};

/// The rows' softmax over the keys in `span`: scores become 2^(score - max). Column 0 of the strip
/// is key `origin`.
template <class T>
void softmax(const TileView<T>& tile, Span span, std::int64_t origin, PerRow<T>& max,
             PerRow<T>& sum) {
  const Span keys = intersection(span, {tile.reach.first, tile.reach.last});
  for (std::size_t r = 0; r < tile.rows; ++r) {
    T* running_max = tile.s.running_max + (tile.i + r) * kLanes<T>;
    max.of[r] = greatest<T>(hn::Load(Tag<T>(), running_max));
    fill(running_max, kLanes<T>, -kInfinity<T>);
    if (!keys.empty())
      sum.of[r] =
          exponentiate(tile.strip + r * tile.s.strip_stride,
                       round_down(keys.first, kPanel<T>) - origin, keys.last - origin, max.of[r]);
  }
}

/// Folds (max, sum) into the partial's from row i on; they become the factors by which the
/// partial's values and the others are to be multiplied: 2^(old max - new max), 2^(max - new max).
template <class T>
void fold_softmax(const Partial<T>& partial, std::size_t i, std::size_t rows, PerRow<T>& max,
                  PerRow<T>& sum) {
  const Tag<T> d;
  PerRow<T> old_max, old_sum;
  for (std::size_t r = 0; r < rows; ++r) {
    old_max.of[r] = partial.max[i + r];
    old_sum.of[r] = partial.sum[i + r];
  }
  for (std::size_t r = 0; r < rows; r += kLanes<T>) {
    const Vec<T> old = hn::Load(d, old_max.of + r), other = hn::Load(d, max.of + r);
    const Vec<T> most = hn::Max(old, other);
    const Vec<T> zero_point = hn::IfThenZeroElse(hn::Eq(most, hn::Set(d, -kInfinity<T>)), most);
    const Vec<T> keep = exp2<T>(hn::Sub(old, zero_point)),
                 add = exp2<T>(hn::Sub(other, zero_point));
    const Vec<T> added = hn::Mul(hn::Load(d, sum.of + r), add);
    hn::Store(hn::MulAdd(hn::Load(d, old_sum.of + r), keep, added), d, old_sum.of + r);
    hn::Store(most, d, old_max.of + r);
    hn::Store(keep, d, max.of + r);
    hn::Store(add, d, sum.of + r);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    partial.max[i + r] = old_max.of[r];
    partial.sum[i + r] = old_sum.of[r];
  }
}

/// The values of one key block as the micro-kernel reads them.
template <class T>
struct ValueBlock {
  const T* values;
  std::size_t keys, at;  ///< packed: panels are `keys` keys long, and the block starts at key `at`
  std::size_t row = 0;   ///< in place: elements from one row to the next; 0: packed
  bool tainted = false;

  const T* from(std::size_t key, std::size_t column, std::size_t width) const {
    return row != 0 ? values + key * row + column : values + column * keys + (at + key) * width;
  }
};

template <class T>
ValueBlock<T> packed_values(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const std::size_t from = number * kKeyBlock, count = HWY_MIN(kKeyBlock, p.S - from);
  if (block.kv.values != nullptr)
    return {block.kv.values, p.S, from, 0, block.kv.tainted[number] != 0};
  T* packed = block.scratch.value_block;
  const bool tainted =
      pack_values(block.kv.v, from, count, p.Dv, block.scratch.widened, packed, kKeyBlock, 0);
  return {packed, kKeyBlock, 0, 0, tainted};
}

/// Those of key block `number`: in place where one tile of rows is all that is to use them, and
/// whole vectors can be read.
template <class T>
ValueBlock<T> value_block(const RowBlock<T>& block, std::size_t number) {
  const Problem<T>& p = block.problem;
  const Rows<T> rows(block.kv.v, p.Dv);
  if (block.kv.values != nullptr || block.rows > kTileRows || !rows.in_place() ||
      block.kv.v.row <= 0 || p.Dv % kLanes<T> != 0)
    return packed_values(block, number);
  return {rows.at(number * kKeyBlock, nullptr), 0, 0, static_cast<std::size_t>(block.kv.v.row)};
}

/// What the zeros that stand for NaN and infinite values in `keys` should have added.
template <class T>
void add_tainted(const TileView<T>& tile, const Matrix& v, Span keys, std::int64_t origin) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  for (std::int64_t key = keys.first; key < keys.last; ++key)
    for (std::size_t column = 0; column < p.Dv; ++column) {
      const auto value = static_cast<T>(element(v, static_cast<std::size_t>(key), column));
      if (is_finite(value)) continue;
      for (std::size_t r = 0; r < rows; ++r)
        if (sees(p, s.row[i + r], static_cast<std::size_t>(key)))
          s.partial.values[(i + r) * s.partial.stride + column] +=
              strip[static_cast<std::int64_t>(r * s.strip_stride) + key - origin] * value;
    }
}

/// What softmax() left in a strip: weights of the keys in `span`, column 0 being key `origin`, and
/// the factors of what is there already and of what is added.
template <class T>
struct Weights {
  Span span;
  std::int64_t origin;
  const PerRow<T>& keep;
  const PerRow<T>& add;
};

/// partial.values = keep * partial.values + add * (strip V), over keys of one block of values.
template <class T>
void add_values(const TileView<T>& tile, const ValueBlock<T>& values, const Matrix& v,
                const Weights<T>& weights) {
  const auto& [p, s, i, rows, reach, strip] = tile;
  const Span keys = intersection(weights.span, {reach.first, reach.last});
  if (keys.empty()) return;
  for (std::size_t column = 0; column < p.Dv; column += kPanel<T>) {
    const std::size_t width = round_up(HWY_MIN(kPanel<T>, p.Dv - column), kLanes<T>);
    value_tile<T>(rows, width / kLanes<T>, static_cast<std::size_t>(keys.last - keys.first),
                  strip + keys.first - weights.origin, s.strip_stride,
                  values.from(static_cast<std::size_t>(keys.first) % kKeyBlock, column, width),
                  values.row != 0 ? values.row : width, weights.keep.of, weights.add.of,
                  s.partial.values + i * s.partial.stride + column, s.partial.stride);
  }
  if (values.tainted) add_tainted(tile, v, keys, weights.origin);
}

/// add_values(), whatever the values. Those read in place may hold NaN and infinity, and leave such
/// behind even where they are hidden: then all is done again with packed ones.
template <class T>
void add_any_values(const RowBlock<T>& block, const TileView<T>& tile, std::size_t number,
                    const ValueBlock<T>& values, const Weights<T>& weights) {
  if (values.row == 0) return add_values(tile, values, block.kv.v, weights);
  const Scratch<T>& s = block.scratch;
  const std::size_t count = tile.rows * s.partial.stride;
  T* sums = s.partial.values + tile.i * s.partial.stride;
  copy_row(sums, count, count, s.saved);
  add_values(tile, values, block.kv.v, weights);
  if (all_finite(sums, count)) return;
  copy_row(s.saved, count, count, sums);
  add_values(tile, packed_values(block, number), block.kv.v, weights);
}

/// Whether some row of the block reaches key block `number`.
template <class T>
bool reaches(const RowBlock<T>& block, std::size_t number) {
  for (std::size_t i = 0; i < block.rows; i += kTileRows) {
    const Tile& tile = block.scratch.tile[i / kTileRows];
    if (!intersection({tile.first, tile.last}, key_block_span(number)).empty()) return true;
  }
  return false;
}

template <class T>
void stream(RowBlock<T>& block, std::size_t from, std::size_t to) {
  for (std::size_t number = from; number < to; ++number) {
    if (!reaches(block, number)) continue;
    const T* keys = key_panels(block, number);
    const ValueBlock<T> values = value_block(block, number);
    // A tile's scores stay in the first level cache until they have met the values.
    for (std::size_t i = 0; i < block.rows; i += kTileRows) {
      const TileView<T> tile(block, i);
      const Span seen = score_block(block, tile, number, keys, 0);
      if (seen.empty()) continue;
      PerRow<T> max, sum;
      const std::int64_t origin = key_block_span(number).first;
      softmax(tile, seen, origin, max, sum);
      fold_softmax(block.scratch.partial, i, tile.rows, max, sum);
      add_any_values(block, tile, number, values, {seen, origin, max, sum});
    }
  }
}

/// Turns one row of 2^(score - max) over the panels of `span` into weights; 0 for what is not
/// seen.
template <class T>
void normalize(const Problem<T>& p, const Row<T>& row, T sum, Span span, T* strip) {
  const Tag<T> d;
  const auto from = span.empty() ? 0 : static_cast<std::size_t>(round_down(span.first, kPanel<T>));
  const auto to = span.empty() ? 0 : round_up(static_cast<std::size_t>(span.last), kPanel<T>);
  fill(strip, from, T(0));
  if (to < p.S) fill(strip + to, p.S - to, T(0));
  if (sum == sum) {
    const Vec<T> factor = hn::Set(d, sum == 0 ? T(0) : 1 / sum);
    for (std::size_t j = from; j < to; j += kLanes<T>)
      hn::Store(hn::Mul(hn::Load(d, strip + j), factor), d, strip + j);
  } else {  // NaN for what is seen, nothing for what is hidden
    for (std::size_t j = from; j < HWY_MIN(to, p.S); ++j) strip[j] = sees(p, row, j) ? sum : T(0);
  }
}

template <class T>
void strip(RowBlock<T>& block) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const std::size_t blocks = (p.S + kKeyBlock - 1) / kKeyBlock;
  const auto each_tile = [&](auto f) {
    for (std::size_t i = 0; i < block.rows; i += kTileRows)
      f(TileView<T>(block, i), s.seen[i / kTileRows]);
  };
  each_tile([](const auto&, Span& seen) { seen = {}; });
  for (std::size_t number = 0; number < blocks; ++number) {
    if (s.raw == nullptr && !reaches(block, number)) continue;
    const T* keys = key_panels(block, number);
    each_tile([&](const auto& tile, Span& seen) {
      const Span here = score_block(block, tile, number, keys, number * kKeyBlock);
      if (!here.empty()) seen = {lesser(seen.first, here.first), here.last};
    });
  }
  each_tile([&](const auto& tile, Span& seen) {
    PerRow<T> max, sum;
    softmax(tile, seen, 0, max, sum);
    fold_softmax(s.partial, tile.i, tile.rows, max, sum);
  });
  PerRow<T> ones;
  fill(ones.of, kTileRows, T(1));
  for (std::size_t number = 0; number < blocks; ++number) {
    if (!reaches(block, number)) continue;
    const ValueBlock<T> values = value_block(block, number);
    each_tile([&](const auto& tile, const Span& seen) {
      const Span here = intersection(seen, key_block_span(number));
      if (!here.empty()) add_any_values(block, tile, number, values, {here, 0, ones, ones});
    });
  }
  each_tile([&](const auto& tile, const Span& seen) {
    const Span keys = intersection(seen, {tile.reach.first, tile.reach.last});
    for (std::size_t r = 0; r < tile.rows; ++r)
      normalize(p, s.row[tile.i + r], s.partial.sum[tile.i + r], keys,
                tile.strip + r * s.strip_stride);
  });
}

template <class T>
void merge(RowBlock<T>& block, const Partial<T>& other) {
  const Tag<T> d;
  const Partial<T>& partial = block.scratch.partial;
  for (std::size_t i = 0; i < block.rows; i += kTileRows) {
    const std::size_t rows = HWY_MIN(kTileRows, block.rows - i);
    PerRow<T> max, sum;
    for (std::size_t r = 0; r < rows; ++r) {
      max.of[r] = other.max[i + r];
      sum.of[r] = other.sum[i + r];
    }
    fold_softmax(partial, i, rows, max, sum);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t j = 0; j < partial.stride; j += kLanes<T>) {
        T* values = partial.values + (i + r) * partial.stride + j;
        const Vec<T> added =
            hn::Mul(hn::Load(d, other.values + (i + r) * other.stride + j), hn::Set(d, sum.of[r]));
        hn::Store(hn::MulAdd(hn::Load(d, values), hn::Set(d, max.of[r]), added), d, values);
      }
  }
}

template <class T>
void finish(RowBlock<T>& block, const Results<T>& results) {
  const Problem<T>& p = block.problem;
  const Partial<T>& partial = block.scratch.partial;
  for (std::size_t i = 0; i < block.rows; ++i) {
    const T sum = partial.sum[i];
    const T factor = sum == 0 ? T(0) : 1 / sum;
    const T* values = partial.values + i * partial.stride;
    T* context = block.scratch.row[i].context;
    // + 0 makes one zero of both: which one it was depends on how many hidden keys were passed by.
    for (std::size_t j = 0; j < p.Dv; ++j) context[j] = values[j] * factor + T(0);
    if (results.logsumexp)
      results.logsumexp[block.first + i] =
          sum == 0 ? -kInfinity<T>
                   : static_cast<T>(partial.max[i] / kLog2e + std::log(double(sum)));
  }
}

template <class T>
Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.geometry = {kLanes<T>, kPanel<T>, kTileRows};
  kernels.pack_keys = pack_keys<T>;
  kernels.pack_values = pack_values<T>;
  kernels.begin = begin<T>;
  kernels.stream = stream<T>;
  kernels.strip = strip<T>;
  kernels.merge = merge<T>;
  kernels.finish = finish<T>;
  kernels.multiply_add = multiply_add<T>;
  return kernels;
}

}  // namespace attn::kernel::HWY_NAMESPACE
