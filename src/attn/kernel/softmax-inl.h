// Softmax of a tile's rows over a range of keys, and how two such are folded into one.
#pragma once

#include "attn/kernel/scores-inl.h"
#include "attn/kernel/simd-inl.h"

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

}  // namespace attn::kernel::HWY_NAMESPACE
