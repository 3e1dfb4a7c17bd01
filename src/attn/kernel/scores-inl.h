// Scores of a block of queries and a panel of keys: softcap, biases and what is hidden.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// How much of a panel a mask lets some row of a block see.
enum class Seen { none, some, all };

HWY_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HWY_INLINE std::int64_t greater(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
HWY_INLINE std::int64_t between(std::int64_t low, std::int64_t x, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// Whether any and whether all of `count` elements let a key be seen.
struct AnyAll {
  bool any = false, all = true;
};
template <class X, class IsSeen>
HWY_INLINE AnyAll any_all(const X* x, std::int64_t stride, std::int64_t count, IsSeen is_seen) {
  unsigned any = 0, all = 1;
  if (stride == 1) {  // by itself, so that it is compiled to vectors
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned seen = is_seen(x[i]);
      any |= seen;
      all &= seen;
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned seen = is_seen(x[i * stride]);
      any |= seen;
      all &= seen;
    }
  }
  return {any != 0, all != 0};
}

/// What mask and bias say about keys [first, first + count) in any of the block's rows.
template <class T>
Seen seen_by_masks(const RowBlock<T>& block, std::int64_t first, std::int64_t count) {
  const Problem<T>& p = block.problem;
  if (!p.mask && !p.bias) return Seen::all;
  const Row<T>* row = block.scratch.row;
  AnyAll seen;
  for (std::size_t i = 0; i < block.rows; ++i) {
    const bool same = i > 0 && row[i].mask == row[i - 1].mask && row[i].bias == row[i - 1].bias;
    if (same) continue;  // one mask for all queries
    AnyAll here{true, true};
    if (p.mask)
      here = any_all(row[i].mask + first * p.mask_strides.column, p.mask_strides.column, count,
                     [](std::uint8_t m) -> unsigned { return m != 0; });
    if (p.bias && here.any) {
      const AnyAll biased =
          any_all(row[i].bias + first * p.bias_strides.column, p.bias_strides.column, count,
                  [](T x) -> unsigned { return !(x == -kInfinity<T>); });
      here.any = biased.any;
      here.all = here.all && biased.all;
    }
    seen.any = seen.any || here.any;
    seen.all = seen.all && here.all;
    if (seen.any && !seen.all) return Seen::some;
  }
  return !seen.any ? Seen::none : seen.all ? Seen::all : Seen::some;
}

/// What is added to the scores of keys first .. first + kPanel: the bias, -inf where hidden.
template <class T>
void read_addend(const Problem<T>& p, const Row<T>& row, std::int64_t first, T* addend) {
  constexpr std::int64_t kWidth = kPanel<T>;
  const std::int64_t from = between(0, row.first - first, kWidth);
  const std::int64_t to = between(from, row.last - first, kWidth);
  for (std::int64_t i = 0; i < kWidth; ++i) addend[i] = i < from || i >= to ? -kInfinity<T> : T(0);
  if (row.bias) {
    const std::int64_t stride = p.bias_strides.column;
    const T* bias = row.bias + first * stride;
    if (stride == 1)
      for (std::int64_t i = from; i < to; ++i) addend[i] = bias[i];
    else
      for (std::int64_t i = from; i < to; ++i) addend[i] = bias[i * stride];
  }
  if (row.mask) {
    const std::int64_t stride = p.mask_strides.column;
    const std::uint8_t* mask = row.mask + first * stride;
    if (stride == 1)
      for (std::int64_t i = from; i < to; ++i) addend[i] = mask[i] ? addend[i] : -kInfinity<T>;
    else
      for (std::int64_t i = from; i < to; ++i)
        addend[i] = mask[i * stride] ? addend[i] : -kInfinity<T>;
  }
}

/// Softcap, ALiBi, bias and hiding on one row's scaled scores of a panel, of which `vectors`
/// vectors have been computed and the rest are all hidden; raises the row's running maximum.
template <class T>
void finish_scores(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::size_t vectors,
                   T* scores, T* running_max) {
  const Tag<T> d;
  HWY_ALIGN T addend[kPanel<T>];
  read_addend(p, row, first, addend);
  const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
  const Vec<T> slope = hn::Set(d, -row.slope);
  const Vec<T> cap = hn::Set(d, p.softcap), inverse_cap = hn::Set(d, T(1) / p.softcap);
  Vec<T> most = hn::Load(d, running_max);
  for (std::size_t j = 0; j < kTileVectors; ++j) {
    const std::size_t lane = j * kLanes<T>;
    Vec<T> score = hidden;
    if (j < vectors) {
      score = hn::Load(d, scores + lane);
      if (p.softcap > 0) score = hn::Mul(cap, tanh<T>(hn::Mul(score, inverse_cap)));
      if (p.alibi) {
        const auto ahead = static_cast<T>(first + static_cast<std::int64_t>(lane) - row.center);
        score = hn::MulAdd(slope, hn::Abs(hn::Iota(d, ahead)), score);
      }
      const Vec<T> term = hn::Load(d, addend + lane);
      score = hn::IfThenElse(hn::Eq(term, hidden), hidden, hn::Add(score, term));
      most = hn::Max(most, score);
    }
    hn::Store(score, d, scores + lane);
  }
  hn::Store(most, d, running_max);
}

/// strip = scale * raw for `rows` rows of a panel, and the running maximum as score_tile() has it.
template <class T>
void scale_raw(std::size_t rows, std::size_t vectors, const T* raw, T* strip, std::size_t stride,
               T scale, T* running_max) {
  const Tag<T> d;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < vectors; ++j) {
      const std::size_t at = i * stride + j * kLanes<T>;
      const Vec<T> score = hn::Mul(hn::Load(d, raw + at), hn::Set(d, scale));
      hn::Store(score, d, strip + at);
      if (running_max == nullptr) continue;
      T* most = running_max + i * kLanes<T>;
      hn::Store(hn::Max(hn::Load(d, most), score), d, most);
    }
}

/// Whether no row of the tile needs finish_scores() for keys [first, first + kPanel).
template <class T>
bool is_plain(const Problem<T>& p, const Tile& tile, std::int64_t first, Seen masks) {
  return masks == Seen::all && !p.bias && !p.alibi && !(p.softcap > 0) && tile.all_first <= first &&
         tile.all_last >= first + static_cast<std::int64_t>(kPanel<T>);
}

/// Scores of one tile of rows, number `number`, against the panel of keys that starts at `first`.
template <class T>
void score_panel_tile(const RowBlock<T>& block, std::size_t number, std::int64_t first, Seen masks,
                      const T* keys, std::size_t strip_column) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const Tile& tile = s.tile[number];
  const std::size_t i = number * kTileRows, rows = HWY_MIN(kTileRows, block.rows - i);
  const T* query = s.query + i * p.D;
  T* scores = s.strip + i * s.strip_stride + strip_column;
  T* running_max = s.running_max + i * kLanes<T>;
  constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);
  const bool reached = tile.first < first + kWidth && tile.last > first;
  const auto reach = static_cast<std::size_t>(between(0, tile.last - first, kWidth));
  const std::size_t vectors =
      reached && masks != Seen::none ? round_up(reach, kLanes<T>) / kLanes<T> : 0;
  const bool plain = vectors > 0 && is_plain<T>(p, tile, first, masks);
  T* plain_max = plain ? running_max : nullptr;
  if (s.raw != nullptr) {
    T* raw = s.raw + i * s.strip_stride + strip_column;
    score_tile<T>(rows, kTileVectors, p.D, query, keys, T(1), raw, s.strip_stride, nullptr);
    scale_raw<T>(rows, vectors, raw, scores, s.strip_stride, p.scale, plain_max);
  } else if (vectors > 0) {
    score_tile<T>(rows, vectors, p.D, query, keys, p.scale, scores, s.strip_stride, plain_max);
  }
  if (plain || !reached) return;
  for (std::size_t r = 0; r < rows; ++r)
    finish_scores(p, s.row[i + r], first, vectors, scores + r * s.strip_stride,
                  running_max + r * kLanes<T>);
}

/// Keys [first, last).
struct Span {
  std::int64_t first = 0, last = 0;
  bool empty() const { return first >= last; }
};

HWY_INLINE Span intersection(Span a, Span b) {
  return {greater(a.first, b.first), lesser(a.last, b.last)};
}

HWY_INLINE Span key_block_span(std::size_t number) {
  const auto first = static_cast<std::int64_t>(number * kKeyBlock);
  return {first, first + static_cast<std::int64_t>(kKeyBlock)};
}

/// The least span that holds all keys that the block's rows reach.
template <class T>
Span reach_of(const RowBlock<T>& block) {
  Span reach{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::size_t t = 0; t * kTileRows < block.rows; ++t) {
    const Tile& tile = block.scratch.tile[t];
    if (tile.first >= tile.last) continue;
    reach.first = lesser(reach.first, tile.first);
    reach.last = greater(reach.last, tile.last);
  }
  return reach;
}

/// Scores of key block `number` against all rows, to strip column `strip_column` and on; the span
/// of whole panels outside of which nothing is seen.
template <class T>
Span score_block(const RowBlock<T>& block, std::size_t number, std::size_t strip_column) {
  const Problem<T>& p = block.problem;
  const Scratch<T>& s = block.scratch;
  const Span reach = reach_of(block);
  const std::size_t end = HWY_MIN(p.S, (number + 1) * kKeyBlock);
  Span seen{std::numeric_limits<std::int64_t>::max(), 0};
  for (std::size_t key = number * kKeyBlock; key < end; key += kPanel<T>) {
    const std::size_t count = HWY_MIN(kPanel<T>, end - key);
    const auto first = static_cast<std::int64_t>(key),
               last = static_cast<std::int64_t>(key + count);
    const bool reached = reach.first < last && reach.last > first;
    const Seen masks = reached ? seen_by_masks(block, first, last - first) : Seen::none;
    if (masks != Seen::none) seen = {lesser(seen.first, first), last};
    const T* keys = block.kv.keys + key * p.D;
    if (block.kv.keys == nullptr) {
      keys = s.key_panel;
      if (masks != Seen::none || s.raw)
        pack_keys(block.kv.k, key, count, p.D, s.widened, s.key_panel);
    }
    if (reached || s.raw)
      for (std::size_t t = 0; t * kTileRows < block.rows; ++t)
        score_panel_tile(block, t, first, masks, keys, strip_column + key % kKeyBlock);
  }
  return seen;
}

}  // namespace attn::kernel::HWY_NAMESPACE
