// The softmax of a group's rows over a range of keys, and its merging into a softmax state.
#pragma once

#include "attn/kernel/scores-inl.h"
#include "attn/kernel/simd-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
HWY_NOINLINE void fill(T* out, std::size_t count, T value) {
  for (std::size_t i = 0; i < count; ++i) out[i] = value;
}

HWY_INLINE std::int64_t round_down(std::int64_t n, std::size_t unit) {
  return n - n % static_cast<std::int64_t>(unit);
}

/// Sets row[from, to) to 2^(row - max) and returns the sum, as one partial sum in each lane. Each
/// key block is summed separately. Sums are over whole panels, so that a wider range around the
/// same visible keys gives the same bytes.
template <class T>
HWY_INLINE Vec<T> exponentiate(T* row, std::int64_t from, std::int64_t to, Vec<T> max) {
  const Tag<T> d;
  // If all scores are -inf, 0 is used instead of the maximum.
  const Vec<T> most = hn::IfThenZeroElse(hn::Eq(max, hn::Set(d, -kInfinity<T>)), max);
  Vec<T> sum = hn::Zero(d);
  for (std::int64_t i = from; i < to;) {
    const std::int64_t end = min64(to, round_down(i, kKeyBlock) + std::int64_t{kKeyBlock});
    Vec<T> sums[kTileVectors];
    for (Vec<T>& lanes : sums) lanes = hn::Zero(d);
    for (; i < end; i += kPanel<T>) {
      T* at = row + i;
      Vec<T> e[kTileVectors];
      unrolled<kTileVectors>(
          [&](std::size_t j) { e[j] = hn::Sub(hn::Load(d, at + j * kLanes<T>), most); });
      exp2_each<T>(e);
      unrolled<kTileVectors>([&](std::size_t j) {
        hn::Store(e[j], d, at + j * kLanes<T>);
        sums[j] = hn::Add(sums[j], e[j]);
      });
    }
    for (std::size_t j = 1; j < kTileVectors; ++j) sums[0] = hn::Add(sums[0], sums[j]);
    sum = hn::Add(sum, sums[0]);
  }
  return sum;
}

/// One number for each row of a group, in whole vectors.
template <class T>
struct PerRow {
  HWY_ALIGN T of[round_up(kGroupRows, kLanes<T>)] = {};
};

/// The softmax of a group's rows over some keys: the maximum score and the sum of 2^(score - max).
template <class T>
struct Softmax {
  PerRow<T> max, sum;
};

/// The factors of the previous weighted sums and of those that are added.
template <class T>
struct Factors {
  PerRow<T> keep, add;
};

/// The rows' softmax over the keys in `span`: scores become 2^(score - max). Column 0 of the scores
/// is key `origin`. Reductions over lanes have a long latency, so those of all rows are done
/// together, before and after the exponentials.
template <class T>
Softmax<T> softmax(const RowGroup<T>& group, Span span, std::int64_t origin) {
  const Tag<T> d;
  Softmax<T> found;
  const Span keys = group.reached(span);
  HWY_ALIGN T lanes[kGroupRows * kLanes<T>];
  for (std::size_t r = 0; r < group.rows; ++r) {
    T* running_max = group.s.running_max + (group.i + r) * kLanes<T>;
    const Vec<T> most = hn::MaxOfLanes(d, hn::Load(d, running_max));
    hn::Store(most, d, lanes + r * kLanes<T>);
    found.max.of[r] = hn::GetLane(most);
    hn::Store(hn::Set(d, -kInfinity<T>), d, running_max);
  }
  if (keys.empty()) return found;
  const std::int64_t from = round_down(keys.first, kPanel<T>) - origin, to = keys.last - origin;
  for (std::size_t r = 0; r < group.rows; ++r) {
    T* of_row = lanes + r * kLanes<T>;
    const Vec<T> most = hn::Load(d, of_row);
    hn::Store(exponentiate<T>(group.scores + r * group.s.score_stride, from, to, most), d, of_row);
  }
  for (std::size_t r = 0; r < group.rows; ++r)
    found.sum.of[r] = total<T>(hn::Load(d, lanes + r * kLanes<T>));
  return found;
}

/// Applies dropout to a row's weights of `keys`, in whole panels. Column 0 of `weights` and `to`,
/// which may be the same, is key `origin`.
template <class T>
void drop(const AttentionProblem<T>& p, const Row<T>& row, Span keys, std::int64_t origin,
          const T* weights, T* to) {
  const Tag<T> d;
  const Vec<T> factor = hn::Set(d, p.dropout_factor);
  std::uint8_t copy[kKeyBlock];
  const std::int64_t end =
      static_cast<std::int64_t>(round_up(static_cast<std::size_t>(keys.last), kPanel<T>));
  for (std::int64_t i = round_down(keys.first, kPanel<T>), next; i < end; i = next) {
    next = min64(end, round_down(i, kKeyBlock) + std::int64_t{kKeyBlock});
    const std::uint8_t* marks = contiguous(row.dropout, p.dropout.strides.column, i, next - i,
                                           static_cast<std::int64_t>(p.S), copy);
    for (std::int64_t j = i; j < next; j += kLanes<T>) {
      const auto marked = nonzero(marks + (j - i), d);
      const Vec<T> kept = hn::Mul(hn::Load(d, weights + (j - origin)), factor);
      hn::Store(
          p.dropout.hides ? hn::IfThenZeroElse(marked, kept) : hn::IfThenElseZero(marked, kept), d,
          to + (j - origin));
    }
  }
}

/// drop() for the rows of a group, if there is dropout. The rows of `to` have the stride of scores.
template <class T>
HWY_INLINE void drop_group(const RowGroup<T>& group, Span span, std::int64_t origin, T* to) {
  const Span keys = group.reached(span);
  if (group.p.dropout.data == nullptr || keys.empty()) return;
  for (std::size_t r = 0; r < group.rows; ++r)
    drop(group.p, group.s.row[group.i + r], keys, origin, group.scores + r * group.s.score_stride,
         to + r * group.s.score_stride);
}

/// Merges a softmax over other keys into the state from row i on. The factors are 2^(old max - new
/// max) and 2^(other max - new max).
template <class T>
Factors<T> fold_softmax(const SoftmaxState<T>& state, std::size_t i, std::size_t rows,
                        const Softmax<T>& other) {
  const Tag<T> d;
  Factors<T> factors;
  for (std::size_t r = 0; r < rows; r += kLanes<T>) {
    const auto used = hn::FirstN(d, rows - r);  // the next group's rows follow
    T* const old_max = state.max + i + r;
    T* const old_sum = state.sum + i + r;
    const Vec<T> old = hn::LoadU(d, old_max), max = hn::Load(d, other.max.of + r);
    const Vec<T> most = hn::Max(old, max);
    const Vec<T> zero_point = hn::IfThenZeroElse(hn::Eq(most, hn::Set(d, -kInfinity<T>)), most);
    const Vec<T> keep = exp2<T>(hn::Sub(old, zero_point)), add = exp2<T>(hn::Sub(max, zero_point));
    const Vec<T> added = hn::Mul(hn::Load(d, other.sum.of + r), add);
    hn::BlendedStore(hn::MulAdd(hn::LoadU(d, old_sum), keep, added), used, d, old_sum);
    hn::BlendedStore(most, used, d, old_max);
    hn::Store(keep, d, factors.keep.of + r);
    hn::Store(add, d, factors.add.of + r);
  }
  return factors;
}

}  // namespace attn::kernel::HWY_NAMESPACE
