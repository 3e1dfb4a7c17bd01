// Attention of a block of query rows: by streaming over key blocks, or on a strip of whole
// rows; both leave a partial that merge() folds and finish() writes out.
#pragma once

#include <cmath>
#include <cstring>

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
    for (std::size_t j = 0; j < p.Dv; ++j) context[j] = values[j] * factor;
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
