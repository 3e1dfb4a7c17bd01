// Attention of a block of query rows: by streaming over key blocks, or on a strip of whole
// rows; both leave a partial that merge() folds and finish() writes out.
#pragma once

#include <cmath>

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/scores-inl.h"
#include "attn/kernel/softmax-inl.h"
#include "attn/kernel/values-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
Tile reach_of(const Row<T>* row, std::size_t rows) {
  Tile tile{std::numeric_limits<std::int64_t>::max(), 0, 0,
            std::numeric_limits<std::int64_t>::max()};
  for (std::size_t r = 0; r < rows; ++r) {
    const Place& place = row[r].place;
    tile.all_first = greater(tile.all_first, place.first);
    tile.all_last = lesser(tile.all_last, place.last);
    if (place.first >= place.last) continue;
    tile.first = lesser(tile.first, place.first);
    tile.last = greater(tile.last, place.last);
  }
  return tile;
}

/// Whether all rows see the same keys, and no mask has to be looked at for that.
template <class T>
bool see_alike(const Problem<T>& p, const Row<T>* row, std::size_t rows) {
  bool alike = !has_masks(p) && !has_biases(p);
  for (std::size_t i = 1; alike && i < rows; ++i)
    alike = row[i].place.first == row[0].place.first && row[i].place.last == row[0].place.last;
  return alike;
}

/// The rows' queries, one behind the other: where they stand if they do so there, otherwise copied
/// to `room`.
template <class T>
const T* read_queries(const Problem<T>& p, const Row<T>* row, std::size_t rows, T* room) {
  const auto size = static_cast<std::ptrdiff_t>(p.D * sizeof(T));
  bool in_place = p.q.dtype == dtype_of<T> && p.q.strides.column == 1;
  for (std::size_t i = 1; i < rows; ++i)
    in_place = in_place && row[i].query - row[i - 1].query == size;
  if (in_place) return reinterpret_cast<const T*>(row[0].query);
  for (std::size_t i = 0; i < rows; ++i) {
    T* to = room + i * p.D;
    const Matrix query{row[i].query, p.q.dtype, 0, p.q.strides.column};
    const T* from = Rows<T>(query, p.D).at(0, to);
    for (std::size_t j = 0; from != to && j < p.D; ++j) to[j] = from[j];
  }
  return room;
}

/// Reads rows and queries. Several tiles of rows are worked on together if all see the same keys:
/// what comes between their products takes as long as for one.
template <class T>
void read_rows(RowBlock<T>& block, const Results<T>& results) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  make_rows(p, results, block.first, block.rows, s.row);
  block.query = read_queries(p, s.row, block.rows, s.query);
  const bool alike = see_alike(p, s.row, block.rows);
  const std::size_t rows = block.tile_rows = alike ? kMostTogether : kTileRows;
  for (std::size_t i = 0; i < block.rows; i += rows)
    s.tile[i / rows] = reach_of(s.row + i, alike ? 1 : HWY_MIN(rows, block.rows - i));
  fill(s.running_max, block.rows * kLanes<T>, -kInfinity<T>);
}

/// The partial's maxima and sums before any key.
template <class T>
void empty_sums(const RowBlock<T>& block) {
  const Scratch<T>& s = block.scratch;
  const std::size_t room = round_up(block.rows, kLanes<T>) + kLanes<T>;  // vectors begin at any row
  fill(s.partial.max + block.rows, room - block.rows, -kInfinity<T>);
  fill(s.partial.sum + block.rows, room - block.rows, T(0));
  if (block.problem.sinks == nullptr || !block.has_sinks) {
    fill(s.partial.max, block.rows, -kInfinity<T>);
    return fill(s.partial.sum, block.rows, T(0));
  }
  for (std::size_t i = 0; i < block.rows; ++i) {  // a sink is a key that stands before all others
    const T sink = s.row[i].sink;
    constexpr T kMost = std::numeric_limits<T>::max();
    s.partial.max[i] = HWY_MIN(HWY_MAX(sink * static_cast<T>(kLog2e), -kMost), kMost);
    if (sink == -kInfinity<T>) s.partial.max[i] = sink;
    s.partial.sum[i] = sink == -kInfinity<T> ? T(0) : T(1);
  }
}

template <class T>
void begin(RowBlock<T>& block, const Results<T>& results) {
  const Partial<T>& partial = block.scratch.partial;
  read_rows(block, results);
  empty_sums(block);
  fill(partial.values, block.rows * partial.stride, T(0));
}

/// Whether some row of the block reaches key block `number`.
template <class T>
bool reaches(const RowBlock<T>& block, std::size_t number) {
  for (std::size_t i = 0; i < block.rows; i += block.tile_rows) {
    const Tile& tile = block.scratch.tile[i / block.tile_rows];
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
    for (std::size_t i = 0; i < block.rows; i += block.tile_rows) {
      const TileView<T> tile(block, i);
      const Span seen = score_block(block, tile, number, keys, 0);
      if (seen.empty()) continue;
      PerRow<T> max, sum;
      const std::int64_t origin = key_block_span(number).first;
      softmax(tile, seen, origin, max, sum);
      fold_softmax(block.scratch.partial, i, tile.rows, max, sum);
      add_any_values(block, tile, number, values, {seen, origin}, max, sum);
    }
  }
}

/// Whether a row sees any key: if so and its sum is 0, then all its scores are -inf, and their
/// differences NaN.
template <class T>
bool sees_any(const Problem<T>& p, const Row<T>& row) {
  for (std::int64_t j = row.place.first; j < row.place.last; ++j)
    if (sees(p, row, static_cast<std::size_t>(j))) return true;
  return false;
}

/// The weight of each key in a row that sees none; 0 of no keys is nothing.
template <class T>
T empty_weight(const Problem<T>& p, const Row<T>& row) {
  return row.place.padding || p.S == 0 ? T(0) : p.empty_weight;
}

/// Turns one row of 2^(score - max) over the panels of `span` into weights; 0 for what is not
/// seen.
template <class T>
void normalize(const Problem<T>& p, const Row<T>& row, T sum, Span span, T* strip) {
  const Tag<T> d;
  if (sum == 0) {
    if (!sees_any(p, row)) return fill(strip, p.S, empty_weight(p, row));
    sum = std::numeric_limits<T>::quiet_NaN();
  }
  const auto from = span.empty() ? 0 : static_cast<std::size_t>(round_down(span.first, kPanel<T>));
  const auto to = span.empty() ? 0 : round_up(static_cast<std::size_t>(span.last), kPanel<T>);
  fill(strip, from, T(0));
  if (to < p.S) fill(strip + to, p.S - to, T(0));
  if (sum == sum) {
    const Vec<T> factor = hn::Set(d, 1 / sum);
    for (std::size_t j = from; j < to; j += kLanes<T>)
      hn::Store(hn::Mul(hn::Load(d, strip + j), factor), d, strip + j);
  } else {  // NaN for what is seen, nothing for what is hidden
    for (std::size_t j = from; j < HWY_MIN(to, p.S); ++j) strip[j] = sees(p, row, j) ? sum : T(0);
  }
}

/// Multiplies row r of a tile by `factor` over the panels of `keys`: where a sink is greater than
/// all scores, these have not been taken from the greatest of all.
template <class T>
void scale_row(const TileView<T>& tile, std::size_t r, Span keys, T factor) {
  const Tag<T> d;
  if (factor == 1 || keys.empty()) return;
  T* row = tile.strip + r * tile.s.strip_stride;
  for (std::int64_t j = round_down(keys.first, kPanel<T>);
       j < static_cast<std::int64_t>(round_up(static_cast<std::size_t>(keys.last), kPanel<T>));
       j += kLanes<T>)
    hn::Store(hn::Mul(hn::Load(d, row + j), hn::Set(d, factor)), d, row + j);
}

template <class T>
void strip(RowBlock<T>& block) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const std::size_t blocks = (p.S + kKeyBlock - 1) / kKeyBlock;
  const auto each_tile = [&](auto f) {
    for (std::size_t i = 0; i < block.rows; i += block.tile_rows)
      f(TileView<T>(block, i), s.seen[i / block.tile_rows]);
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
    const Span keys = intersection(seen, {tile.reach.first, tile.reach.last});
    if (p.sinks)
      for (std::size_t r = 0; r < tile.rows; ++r) scale_row(tile, r, keys, sum.of[r]);
  });
  PerRow<T> ones;
  fill(ones.of, kMostTogether, T(1));
  for (std::size_t number = 0; number < blocks; ++number) {
    if (!reaches(block, number)) continue;
    const ValueBlock<T> values = value_block(block, number);
    each_tile([&](const auto& tile, const Span& seen) {
      const Span here = intersection(seen, key_block_span(number));
      if (!here.empty()) add_any_values(block, tile, number, values, {here, 0}, ones, ones);
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
  for (std::size_t i = 0; i < block.rows; i += block.tile_rows) {
    const std::size_t rows = HWY_MIN(block.tile_rows, block.rows - i);
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

/// The mean of all values, hidden or not, in short sums.
template <class T>
void average_values(const RowBlock<T>& block, T* out) {
  const Problem<T>& p = block.problem;
  const Rows<T> values(block.kv.v, p.Dv);
  T* sums = block.scratch.saved;
  fill(out, p.Dv, T(0));
  for (std::size_t key = 0; key < p.S; key += kSumDepth<T>) {
    fill(sums, p.Dv, T(0));
    for (std::size_t k = key; k < HWY_MIN(p.S, key + kSumDepth<T>); ++k) {
      const T* value = values.at(k, block.scratch.widened);
      for (std::size_t j = 0; j < p.Dv; ++j) sums[j] += value[j];
    }
    for (std::size_t j = 0; j < p.Dv; ++j) out[j] += sums[j];
  }
  for (std::size_t j = 0; j < p.Dv; ++j) out[j] *= p.empty_weight;
}

/// The context of a row whose sum is 0.
template <class T>
void finish_nothing(const RowBlock<T>& block, const Row<T>& row) {
  const Problem<T>& p = block.problem;
  const T weight = sees_any(p, row) ? std::numeric_limits<T>::quiet_NaN() : empty_weight(p, row);
  if (weight > 0) return average_values(block, row.context);
  fill(row.context, p.Dv, weight);
}

/// log(2^max sum): of an infinite maximum there is nothing to sum.
template <class T>
T logsumexp_of(T max, T sum) {
  if (sum == 0) return -kInfinity<T>;
  return max == kInfinity<T> ? max : static_cast<T>(max / kLog2e + std::log(double(sum)));
}

/// The context of row i, `values` times `factor`, unless it stands there already, and logsumexp.
template <class T>
HWY_INLINE void write_row(const RowBlock<T>& block, const Results<T>& results, std::size_t i,
                          const T* values, T factor) {
  const Partial<T>& partial = block.scratch.partial;
  const Row<T>& row = block.scratch.row[i];
  const T sum = partial.sum[i];
  if (sum == 0)
    finish_nothing(block, row);
  else if (values != row.context)
    for (std::size_t j = 0; j < block.problem.Dv; ++j) row.context[j] = values[j] * factor;
  if (results.logsumexp) results.logsumexp[block.first + i] = logsumexp_of(partial.max[i], sum);
}

template <class T>
void finish(RowBlock<T>& block, const Results<T>& results) {
  const Partial<T>& partial = block.scratch.partial;
  for (std::size_t i = 0; i < block.rows; ++i)
    write_row(block, results, i, partial.values + i * partial.stride, 1 / partial.sum[i]);
}

/// Where a tile's context goes: straight to its place if its rows are evenly apart and of whole
/// vectors, otherwise into the partial.
template <class T>
Sums<T> context_of(const TileView<T>& tile) {
  const Row<T>* row = tile.s.row + tile.i;
  const std::ptrdiff_t stride = tile.rows > 1 ? row[1].context - row[0].context : 1;
  bool even = stride > 0 && tile.p.Dv % kLanes<T> == 0;
  for (std::size_t r = 1; r < tile.rows; ++r)
    even = even && row[r].context - row[r - 1].context == stride;
  if (even) return {row[0].context, static_cast<std::size_t>(stride), nullptr, nullptr};
  const Partial<T>& partial = tile.s.partial;
  return {partial.values + tile.i * partial.stride, partial.stride, nullptr, nullptr};
}

template <class T>
bool all_finite(const Sums<T>& sums, std::size_t rows, std::size_t width) {
  bool finite = true;
  for (std::size_t r = 0; r < rows; ++r)
    finite = finite && all_finite(sums.out + r * sums.stride, width);
  return finite;
}

/// Softmax of a tile whose strip holds scores: they become weights but for a factor a row.
template <class T>
void weigh_tile(const TileView<T>& tile, Span seen, PerRow<T>& factor) {
  const Partial<T>& partial = tile.s.partial;
  PerRow<T> max;
  if (!seen.empty()) {
    softmax(tile, seen, 0, max, factor);
    fold_softmax(partial, tile.i, tile.rows, max, factor);
  }
  for (std::size_t r = 0; r < tile.rows; ++r) factor.of[r] /= partial.sum[tile.i + r];
}

/// The context of a tile whose strip holds weights.
template <class T>
void finish_tile(const RowBlock<T>& block, const Results<T>& results, const TileView<T>& tile,
                 const ValueBlock<T>& values, Span seen, const PerRow<T>& factor) {
  const auto& [p, s, i, rows, behind, reach, query, strip] = tile;
  Sums<T> to = context_of(tile);
  to.add = factor.of;
  if (intersection(seen, {reach.first, reach.last}).empty()) {
    for (std::size_t r = 0; r < rows; ++r) fill(to.out + r * to.stride, p.Dv, T(0));
  } else {
    add_values(tile, values, block.kv.v, {seen, 0}, to);
    if (!values.checked && !all_finite(to, rows, p.Dv))
      add_values(tile, packed_values(block, 0), block.kv.v, {seen, 0}, to);
  }
  for (std::size_t r = 0; r < rows; ++r)
    write_row(block, results, i + r, to.out + r * to.stride, T(1));
}

template <class T>
void single(RowBlock<T>& block, const Results<T>& results) {
  read_rows(block, results);
  empty_sums(block);
  const bool reached = reaches(block, 0);
  const T* keys = reached ? key_panels(block, 0) : nullptr;
  const ValueBlock<T> values = reached ? value_block(block, 0) : ValueBlock<T>{};
  for (std::size_t i = 0; i < block.rows; i += block.tile_rows) {
    const TileView<T> tile(block, i);
    const Span seen = reached ? score_block(block, tile, 0, keys, 0) : Span{};
    PerRow<T> factor;
    weigh_tile(tile, seen, factor);
    finish_tile(block, results, tile, values, seen, factor);
  }
}

template <class T>
Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.geometry = {kLanes<T>, kPanel<T>, kTileRows, kMostTogether};
  kernels.pack_keys = pack_keys<T>;
  kernels.pack_values = pack_values<T>;
  kernels.begin = begin<T>;
  kernels.stream = stream<T>;
  kernels.strip = strip<T>;
  kernels.merge = merge<T>;
  kernels.finish = finish<T>;
  kernels.single = single<T>;
  kernels.multiply_add = multiply_add<T>;
  return kernels;
}

}  // namespace attn::kernel::HWY_NAMESPACE
