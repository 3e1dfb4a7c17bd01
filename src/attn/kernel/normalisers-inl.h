// The normalisers other than softmax, of whole rows of scores (problem.h).
#pragma once

#include "attn/kernel/softmax-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// A row of scores in units of log(2) in whole panels, -inf for hidden keys.
template <class T>
struct ScoreRow {
  const T* scores;
  std::size_t from, to;
  T max;

  /// Calls f(j, z) for each vector, where z = (score - max) log(2) is at most 0.
  template <class F>
  HWY_INLINE void each_below_max(F f) const {
    const Tag<T> d;
    const Vec<T> unit = hn::Set(d, static_cast<T>(1 / kLog2e)), most = hn::Set(d, max);
    for (std::size_t j = from; j < to; j += kLanes<T>)
      f(j, hn::Mul(hn::Sub(hn::Load(d, scores + j), most), unit));
  }
};

/// t with sum max(z - t, 0) = 1. Starts from a t that is too small, which leaves in the keys with
/// z > t; their t is larger and leaves out more, until none is left out (Michelot, 1986).
template <class T>
T sparsemax_threshold(const ScoreRow<T>& row) {
  const Tag<T> d;
  T t = -1;
  for (T before = 0;;) {
    Vec<T> sum = hn::Zero(d), count = hn::Zero(d);
    row.each_below_max([&](std::size_t, Vec<T> z) ATTN_INLINE {
      const auto is_in = hn::Gt(z, hn::Set(d, t));
      sum = hn::Add(sum, hn::IfThenElseZero(is_in, z));
      count = hn::Add(count, hn::IfThenElseZero(is_in, hn::Set(d, T(1))));
    });
    const T keys = total<T>(count);
    t = (total<T>(sum) - 1) / keys;
    if (keys == before) return t;
    before = keys;
  }
}

/// t with sum max(z / 2 - t, 0)^2 = 1, by Newton's method. The sum is convex in t, so steps from a
/// t that is too small never pass the solution.
template <class T>
T entmax_threshold(const ScoreRow<T>& row) {
  const Tag<T> d;
  T t = -1;
  for (int step = 0; step < 50; ++step) {
    Vec<T> sum = hn::Zero(d), squares = hn::Zero(d);
    row.each_below_max([&](std::size_t, Vec<T> z) ATTN_INLINE {
      const Vec<T> x = hn::Max(hn::MulSub(z, hn::Set(d, T(0.5)), hn::Set(d, t)), hn::Zero(d));
      sum = hn::Add(sum, x);
      squares = hn::MulAdd(x, x, squares);
    });
    const T next = t + (total<T>(squares) - 1) / (2 * total<T>(sum));
    if (!(next > t)) break;
    t = next;
  }
  return t;
}

/// How many scores are at least `least`.
template <class T>
std::size_t count_from(const ScoreRow<T>& row, T least) {
  const Tag<T> d;
  std::size_t count = 0;
  for (std::size_t j = row.from; j < row.to; j += kLanes<T>)
    count += hn::CountTrue(d, hn::Ge(hn::Load(d, row.scores + j), hn::Set(d, least)));
  return count;
}

/// A number that the k largest scores are not below and the others are, by bisection; the k-th
/// largest if others equal it, and the lowest finite number if there are not more than k.
template <class T>
T least_of_largest(const ScoreRow<T>& row, std::size_t k) {
  const Tag<T> d;
  T low = std::numeric_limits<T>::lowest();
  if (count_from(row, low) <= k) return low;
  Vec<T> least = hn::Set(d, row.max);
  for (std::size_t j = row.from; j < row.to; j += kLanes<T>) {
    const Vec<T> x = hn::Load(d, row.scores + j);
    least = hn::Min(least, hn::IfThenElse(hn::Eq(x, hn::Set(d, -kInfinity<T>)), least, x));
  }
  low = hn::GetLane(hn::MinOfLanes(d, least));
  if (count_from(row, row.max) >= k) return row.max;
  for (T high = row.max;;) {  // at least k scores are not below `low`, fewer not below `high`
    const T middle = low / 2 + high / 2;
    if (!(middle > low && middle < high)) return low;
    const std::size_t count = count_from(row, middle);
    if (count == k) return middle;
    (count > k ? low : high) = middle;
  }
}

/// Softmax of the k largest scores.
template <class T>
void weigh_largest(const ScoreRow<T>& row, std::size_t k, T* weights) {
  const Tag<T> d;
  const T least = least_of_largest(row, k);
  const T* scores = row.scores;
  if (std::size_t surplus = count_from(row, least); surplus > k) {  // leaves out the last of them
    surplus -= k;
    for (std::size_t j = row.to; j-- > row.from;) {
      const bool is_left_out = surplus > 0 && scores[j] == least;
      weights[j] = is_left_out ? -kInfinity<T> : scores[j];
      surplus -= is_left_out;
    }
    scores = weights;
  }
  Vec<T> sum = hn::Zero(d);
  for (std::size_t j = row.from; j < row.to; j += kLanes<T>) {
    const Vec<T> x = hn::Load(d, scores + j);
    const Vec<T> e =
        hn::IfThenElseZero(hn::Ge(x, hn::Set(d, least)), exp2<T>(hn::Sub(x, hn::Set(d, row.max))));
    hn::Store(e, d, weights + j);
    sum = hn::Add(sum, e);
  }
  const Vec<T> factor = hn::Set(d, 1 / total<T>(sum));
  for (std::size_t j = row.from; j < row.to; j += kLanes<T>)
    hn::Store(hn::Mul(hn::Load(d, weights + j), factor), d, weights + j);
}

/// Writes the weights of a row.
template <class T>
void weigh_row(const AttentionProblem<T>& p, const ScoreRow<T>& row, T* weights) {
  const Tag<T> d;
  const Normaliser normaliser = p.normaliser;
  if (normaliser == Normaliser::top_k) return weigh_largest(row, p.top_k, weights);
  const Vec<T> zero = hn::Zero(d), one = hn::Set(d, T(1));
  if (normaliser == Normaliser::sparsemax) {
    const Vec<T> t = hn::Set(d, sparsemax_threshold(row));
    row.each_below_max([&](std::size_t j, Vec<T> z) ATTN_INLINE {
      hn::Store(hn::Max(hn::Sub(z, t), zero), d, weights + j);
    });
  } else if (normaliser == Normaliser::entmax15) {
    const Vec<T> t = hn::Set(d, entmax_threshold(row)), half = hn::Set(d, T(0.5));
    row.each_below_max([&](std::size_t j, Vec<T> z) ATTN_INLINE {
      const Vec<T> x = hn::Max(hn::MulSub(z, half, t), zero);
      hn::Store(hn::Mul(x, x), d, weights + j);
    });
  } else if (normaliser == Normaliser::hardmax) {
    fill(weights + row.from, row.to - row.from, T(0));
    std::size_t first = row.from;
    for (std::size_t j = row.from; j < row.to; ++j)
      if (row.scores[j] > row.scores[first]) first = j;
    weights[first] = 1;
  } else {
    for (std::size_t j = row.from; j < row.to; j += kLanes<T>) {
      const Vec<T> x = hn::Load(d, row.scores + j);
      const Vec<T> e = exp2<T>(hn::Neg(hn::Abs(x)));
      const Vec<T> above = hn::IfThenElse(hn::Lt(x, zero), e, one);
      hn::Store(hn::Div(above, hn::Add(one, e)), d, weights + j);
    }
  }
}

/// Copies the scores of a group before softmax() replaces them.
template <class T>
void keep_scores(const RowGroup<T>& group, Span keys) {
  if (keys.empty()) return;
  const auto from = static_cast<std::size_t>(round_down(keys.first, kPanel<T>));
  const std::size_t count = round_up(static_cast<std::size_t>(keys.last), kPanel<T>) - from;
  for (std::size_t r = 0; r < group.rows; ++r)
    copy_elements(group.scores + r * group.s.score_stride + from, count,
                  group.s.unweighed + r * group.s.score_stride + from);
}

/// Replaces the exponentials of a group by the weights of its kept scores. Rows whose weights
/// depend on each other are left unchanged if they see no key, or a score that is NaN or infinity.
template <class T>
void weigh(const RowGroup<T>& group, Span keys, const Softmax<T>& softmax) {
  if (keys.empty()) return;
  const auto from = static_cast<std::size_t>(round_down(keys.first, kPanel<T>));
  const std::size_t to = round_up(static_cast<std::size_t>(keys.last), kPanel<T>);
  for (std::size_t r = 0; r < group.rows; ++r) {
    const std::size_t row = r * group.s.score_stride;
    const T sum = softmax.sum.of[r];
    if (group.p.normaliser != Normaliser::sigmoid && (sum == 0 || !is_finite(sum))) continue;
    weigh_row<T>(group.p, {group.s.unweighed + row, from, to, softmax.max.of[r]},
                 group.scores + row);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
