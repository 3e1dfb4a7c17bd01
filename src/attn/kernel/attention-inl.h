// Softmax and values of a block of query rows: by streaming over key blocks, or on a strip of whole
// rows; both leave a partial that merge() folds and finish() writes out.
#pragma once

#include <cmath>

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
void begin(RowBlock<T>& block, const Results<T>& results) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  for (std::size_t i = 0; i < block.rows; ++i) {
    s.row[i] = make_row(p, results, block.first + i);
    T* room = s.query + i * p.D;
    const T* query = widened_row(query_of(p, block.first + i), 0, p.D, room);
    if (query != room)
      for (std::size_t j = 0; j < p.D; ++j) room[j] = query[j];
  }
  for (std::size_t i = 0; i < block.rows; i += kTileRows) {
    Tile tile{std::numeric_limits<std::int64_t>::max(), 0, 0,
              std::numeric_limits<std::int64_t>::max()};
    for (std::size_t r = i; r < HWY_MIN(i + kTileRows, block.rows); ++r) {
      const Row<T>& row = s.row[r];
      tile.all_first = greater(tile.all_first, row.first);
      tile.all_last = lesser(tile.all_last, row.last);
      if (row.first >= row.last) continue;
      tile.first = lesser(tile.first, row.first);
      tile.last = greater(tile.last, row.last);
    }
    s.tile[i / kTileRows] = tile;
  }
  fill(s.partial.max, block.rows, -kInfinity<T>);
  fill(s.partial.sum, block.rows, T(0));
  fill(s.partial.values, block.rows * s.partial.stride, T(0));
  fill(s.running_max, block.rows * kLanes<T>, -kInfinity<T>);
}

/// row[from, to) = exp(row - max); returns the sum. Sums run along whole panels, so that a wider
/// range around the same visible keys gives the same bytes.
template <class T>
T exponentiate(T* row, std::int64_t from, std::int64_t to, T max) {
  const Tag<T> d;
  const Vec<T> most = hn::Set(d, pivot(max));
  Vec<T> sums[kTileVectors];
  for (std::size_t j = 0; j < kTileVectors; ++j) sums[j] = hn::Zero(d);
  for (std::int64_t i = from; i < to; i += kPanel<T>)
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kTileVectors; ++j) {
      T* at = row + i + j * kLanes<T>;
      const Vec<T> e = exp<T>(hn::Sub(hn::Load(d, at), most));
      hn::Store(e, d, at);
      sums[j] = hn::Add(sums[j], e);
    }
  for (std::size_t j = 1; j < kTileVectors; ++j) sums[0] = hn::Add(sums[0], sums[j]);
  return total<T>(sums[0]);
}

HWY_INLINE std::int64_t round_down(std::int64_t n, std::size_t unit) {
  return n - n % static_cast<std::int64_t>(unit);
}

/// The rows' maxima and sums over the keys in `span`, whose scores become exp(score - max). Key 0
/// of the strip is key `origin`.
template <class T>
void softmax_block(const RowBlock<T>& block, Span span, std::int64_t origin) {
  const Scratch<T>& s = block.scratch;
  for (std::size_t i = 0; i < block.rows; ++i) {
    const Tile& tile = s.tile[i / kTileRows];
    const Span keys = intersection(span, {tile.first, tile.last});
    T* running_max = s.running_max + i * kLanes<T>;
    s.block_max[i] = greatest<T>(hn::Load(Tag<T>(), running_max));
    s.block_sum[i] = 0;
    if (!keys.empty())
      s.block_sum[i] =
          exponentiate(s.strip + i * s.strip_stride, round_down(keys.first, kPanel<T>) - origin,
                       keys.last - origin, s.block_max[i]);
    fill(running_max, kLanes<T>, -kInfinity<T>);
  }
}

/// Folds (max, sum) of `rows` rows into the partial's and leaves in keep and add the factors of its
/// values and of the other's: e^(old max - new max), e^(other max - new max).
template <class T>
void fold_softmax(const Scratch<T>& s, std::size_t rows, const T* max, const T* sum) {
  const Tag<T> d;
  const Vec<T> lowest = hn::Set(d, -kInfinity<T>);
  for (std::size_t i = 0; i < rows; i += kLanes<T>) {
    const Vec<T> old_max = hn::LoadU(d, s.partial.max + i), other_max = hn::LoadU(d, max + i);
    const Vec<T> new_max = hn::Max(old_max, other_max);
    const Vec<T> zero_point = hn::IfThenZeroElse(hn::Eq(new_max, lowest), new_max);
    const Vec<T> keep = exp<T>(hn::Sub(old_max, zero_point));
    const Vec<T> add = exp<T>(hn::Sub(other_max, zero_point));
    const Vec<T> old_sum = hn::LoadU(d, s.partial.sum + i), other_sum = hn::LoadU(d, sum + i);
    hn::StoreU(hn::MulAdd(old_sum, keep, hn::Mul(other_sum, add)), d, s.partial.sum + i);
    hn::StoreU(new_max, d, s.partial.max + i);
    hn::StoreU(keep, d, s.keep + i);
    hn::StoreU(add, d, s.add + i);
  }
}

/// What the zeros that stand for NaN and infinite values should have added.
template <class T>
void add_tainted(const RowBlock<T>& block, Span span, std::int64_t origin) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  for (std::int64_t key = span.first; key < lesser(span.last, static_cast<std::int64_t>(p.S));
       ++key)
    for (std::size_t column = 0; column < p.Dv; ++column) {
      const auto value = static_cast<T>(element(block.kv.v, static_cast<std::size_t>(key), column));
      if (is_finite(value)) continue;
      for (std::size_t i = 0; i < block.rows; ++i)
        if (sees(p, s.row[i], static_cast<std::size_t>(key)))
          s.partial.values[i * s.partial.stride + column] +=
              s.strip[static_cast<std::int64_t>(i * s.strip_stride) + key - origin] * value;
    }
}

/// partial.values = keep * partial.values + add * (strip V), over the keys in `span`, all of key
/// block `number`.
template <class T>
void add_values(const RowBlock<T>& block, std::size_t number, Span span, std::int64_t origin) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const std::size_t block_first = number * kKeyBlock;
  const std::size_t count = HWY_MIN(kKeyBlock, p.S - block_first);
  const T* values = block.kv.values;
  std::size_t keys = p.S, at = block_first;  // how long a packed panel is, where the block starts
  bool tainted = false;
  if (values != nullptr) {
    tainted = block.kv.tainted[number] != 0;
  } else {
    values = s.value_block;
    keys = kKeyBlock;
    at = 0;
    tainted = pack_values(block.kv.v, block_first, count, p.Dv, s.widened, s.value_block, keys, at);
  }
  for (std::size_t column = 0; column < p.Dv; column += kPanel<T>) {
    const std::size_t width = round_up(HWY_MIN(kPanel<T>, p.Dv - column), kLanes<T>);
    const T* panel = values + column * keys + at * width;
    for (std::size_t i = 0; i < block.rows; i += kTileRows) {
      const Tile& tile = s.tile[i / kTileRows];
      const Span seen = intersection(span, {tile.first, tile.last});
      if (seen.empty()) continue;
      const auto skipped = static_cast<std::size_t>(seen.first) - block_first;
      value_tile<T>(HWY_MIN(kTileRows, block.rows - i), width / kLanes<T>,
                    static_cast<std::size_t>(seen.last - seen.first),
                    s.strip + static_cast<std::int64_t>(i * s.strip_stride) + seen.first - origin,
                    s.strip_stride, panel + skipped * width, s.keep + i, s.add + i,
                    s.partial.values + i * s.partial.stride + column, s.partial.stride);
    }
  }
  if (tainted) add_tainted(block, span, origin);
}

template <class T>
void stream(RowBlock<T>& block, std::size_t from, std::size_t to) {
  const Scratch<T>& s = block.scratch;
  const Span reach = reach_of(block);
  for (std::size_t number = from; number < to; ++number) {
    if (intersection(reach, key_block_span(number)).empty()) continue;
    const Span seen = score_block(block, number, 0);
    if (seen.empty()) continue;
    const std::int64_t origin = key_block_span(number).first;
    softmax_block(block, seen, origin);
    fold_softmax(s, block.rows, s.block_max, s.block_sum);
    add_values(block, number, seen, origin);
  }
}

/// Turns exp(score - max) into weights: divided by the sum, 0 where nothing is seen.
template <class T>
void normalize_strip(const RowBlock<T>& block, Span span) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const Tag<T> d;
  for (std::size_t i = 0; i < block.rows; ++i) {
    T* row = s.strip + i * s.strip_stride;
    const T sum = s.partial.sum[i];
    const Tile& tile = s.tile[i / kTileRows];
    const Span keys = intersection(span, {tile.first, tile.last});
    const auto from =
        keys.empty() ? 0 : static_cast<std::size_t>(round_down(keys.first, kPanel<T>));
    const auto to = keys.empty() ? 0 : round_up(static_cast<std::size_t>(keys.last), kPanel<T>);
    fill(row, from, T(0));
    if (to < p.S) fill(row + to, p.S - to, T(0));
    if (sum == sum) {
      const Vec<T> factor = hn::Set(d, sum == 0 ? T(0) : 1 / sum);
      for (std::size_t j = from; j < to; j += kLanes<T>)
        hn::Store(hn::Mul(hn::Load(d, row + j), factor), d, row + j);
    } else {  // NaN for what is seen, nothing for what is hidden
      for (std::size_t j = from; j < HWY_MIN(to, p.S); ++j)
        row[j] = sees(p, s.row[i], j) ? sum : T(0);
    }
  }
}

template <class T>
void strip(RowBlock<T>& block) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const std::size_t blocks = (p.S + kKeyBlock - 1) / kKeyBlock;
  const Span reach = reach_of(block);
  Span seen{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::size_t number = 0; number < blocks; ++number) {
    if (s.raw == nullptr && intersection(reach, key_block_span(number)).empty()) continue;
    const Span here = score_block(block, number, number * kKeyBlock);
    if (!here.empty()) seen = {lesser(seen.first, here.first), here.last};
  }
  if (!seen.empty()) {
    softmax_block(block, seen, 0);
    fold_softmax(s, block.rows, s.block_max, s.block_sum);
    fill(s.keep, block.rows, T(1));
    fill(s.add, block.rows, T(1));
    for (std::size_t number = 0; number < blocks; ++number) {
      const Span span = intersection(seen, key_block_span(number));
      if (!span.empty()) add_values(block, number, span, 0);
    }
  }
  normalize_strip(block, seen);
}

template <class T>
void merge(RowBlock<T>& block, const Partial<T>& other) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const Tag<T> d;
  fold_softmax(s, block.rows, other.max, other.sum);
  for (std::size_t i = 0; i < block.rows; ++i) {
    if (other.sum[i] == 0) continue;  // nothing seen, and nothing written
    const Vec<T> keep = hn::Set(d, s.keep[i]), add = hn::Set(d, s.add[i]);
    T* values = s.partial.values + i * s.partial.stride;
    const T* others = other.values + i * other.stride;
    for (std::size_t j = 0; j < p.Dv; j += kLanes<T>)
      hn::Store(hn::MulAdd(hn::Load(d, values + j), keep, hn::Mul(hn::Load(d, others + j), add)), d,
                values + j);
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
          sum == 0 ? -kInfinity<T> : partial.max[i] + std::log(sum);
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
