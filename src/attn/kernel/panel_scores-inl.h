// What comes between the scores of a panel of keys and the softmax.
#pragma once

#include <limits>
#include <type_traits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/masks-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// A row's elements of keys `first` to `first + width`, side by side: where they stand if they all
/// do, otherwise copied, zeros in place of those from key `keys` on.
template <class X>
HWY_INLINE const X* contiguous(const X* row, std::int64_t stride, std::int64_t first,
                               std::int64_t width, std::int64_t keys, X* copy) {
  row += first * stride;
  if (stride == 1 && first + width <= keys) return row;
  for (std::int64_t i = 0; i < width; ++i) copy[i] = first + i < keys ? row[i * stride] : X(0);
  return copy;
}

/// Where a row's scores of a run of panels come from and go to.
template <class T>
struct PanelRow {
  const T* from;   ///< scores / scale
  T scale;         ///< of `from`
  T* scaled;       ///< nullptr: not asked for
  T* masked;       ///< nullptr: not asked for
  T* strip;        ///< masked scores * unit; may be `from`
  T unit;          ///< of the strip
  T* running_max;  ///< a vector, raised to what is in the strip
};

/// -inf where the bias is that, whatever the score.
template <class T>
HWY_INLINE Vec<T> hidden_by_bias(Vec<T> score, const T* bias) {
  const Tag<T> d;
  const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
  return hn::IfThenElse(hn::Eq(hn::LoadU(d, bias), hidden), hidden, score);
}

/// -inf where the mask is nonzero if it `hides`, or else where it is zero.
template <class T>
HWY_INLINE Vec<T> hidden_by_mask(Vec<T> score, const std::uint8_t* mask, bool hides) {
  const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
  const auto marked = nonzero(mask, Tag<T>());
  return hides ? hn::IfThenElse(marked, hidden, score) : hn::IfThenElse(marked, score, hidden);
}

/// Where elements are put together that do not stand side by side, a key block of them.
template <class T>
struct Room {
  T distances[kKeyBlock], biases[2][kKeyBlock];
  std::uint8_t masks[3][kKeyBlock];
};

/// What one row adds and hides in a run of panels. Few and by value: so the compiler keeps it in
/// registers, whatever is stored meanwhile.
template <class T>
struct Terms {
  const T *distances, *bias0, *bias1;
  const std::uint8_t *mask0, *mask1, *mask2;
  std::int64_t from, to;  ///< what is seen, in the run
  bool limits;

  HWY_INLINE Terms(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::int64_t width,
                   Room<T>& room) {
    const auto here = [&](const auto* all, std::int64_t column, auto* copy) {
      const auto keys = static_cast<std::int64_t>(p.S);
      return all ? contiguous(all, column, first, width, keys, copy) : nullptr;
    };
    const auto bias = [&](std::size_t m) {
      return here(row.biases[m], p.biases[m].strides.column, room.biases[m]);
    };
    const auto mask = [&](std::size_t m) {
      return here(row.masks[m], p.masks[m].strides.column, room.masks[m]);
    };
    distances = here(row.distances, 1, room.distances);
    bias0 = bias(0), bias1 = bias(1);
    mask0 = mask(0), mask1 = mask(1), mask2 = mask(2);
    from = between(0, row.place.first - first, width);
    to = between(0, row.place.last - first, width);
    limits = from > 0 || to < width;
  }

  HWY_INLINE Vec<T> added(Vec<T> score, std::size_t lane) const {
    const Tag<T> d;
    if (bias0) score = hn::Add(score, hn::LoadU(d, bias0 + lane));
    if (bias1) score = hn::Add(score, hn::LoadU(d, bias1 + lane));
    return score;
  }

  HWY_INLINE Vec<T> hidden_by_biases(Vec<T> score, std::size_t lane) const {
    if (bias0) score = hidden_by_bias<T>(score, bias0 + lane);
    if (bias1) score = hidden_by_bias<T>(score, bias1 + lane);
    return score;
  }

  HWY_INLINE Vec<T> hidden_by_masks(Vec<T> score, std::size_t lane, const bool (&hides)[3]) const {
    if (mask0) score = hidden_by_mask<T>(score, mask0 + lane, hides[0]);
    if (mask1) score = hidden_by_mask<T>(score, mask1 + lane, hides[1]);
    if (mask2) score = hidden_by_mask<T>(score, mask2 + lane, hides[2]);
    return score;
  }

  HWY_INLINE Vec<T> hidden_by_place(Vec<T> score, std::size_t lane) const {
    if (!limits) return score;
    const Tag<T> d;
    const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
    const auto seen = hn::And(hn::Ge(at, hn::Set(d, static_cast<T>(from))),
                              hn::Lt(at, hn::Set(d, static_cast<T>(to))));
    return hn::IfThenElse(seen, score, hn::Set(d, -kInfinity<T>));
  }
};

/// score * unit. A bias of the lowest finite numbers, which hides by outweighing only, has to stay
/// finite.
template <class T, bool kBiased>
HWY_INLINE Vec<T> in_units(Vec<T> score, Vec<T> unit) {
  const Vec<T> scaled = hn::Mul(score, unit);
  if constexpr (!kBiased) return scaled;
  constexpr T kLowest = std::numeric_limits<T>::lowest();
  const auto finite = hn::Ge(score, hn::Set(Tag<T>(), kLowest));
  return hn::IfThenElse(finite, at_least<T>(hn::Set(Tag<T>(), kLowest), scaled), scaled);
}

/// -inf in `count` elements.
template <class T>
HWY_INLINE void hide_all(T* scores, std::size_t count) {
  for (std::size_t lane = 0; lane < count; lane += kLanes<T>)
    hn::Store(hn::Set(Tag<T>(), -kInfinity<T>), Tag<T>(), scores + lane);
}

/// From scores to what the softmax takes, for one row and `count` keys from `first` on, in one
/// pass.
template <class T, bool kCaps, bool kBiased, bool kMasked>
void finish_row(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::size_t count,
                const PanelRow<T>& at) {
  const Tag<T> d;
  Room<T> room;
  const Terms<T> terms(p, row, first, static_cast<std::int64_t>(count), room);
  const auto [from, by, scaled, masked, strip, unit, running_max] = at;
  const Softcap<T> capped(p.softcap);
  const bool last = p.softcap_last;
  const bool hides[] = {p.masks[0].hides, p.masks[1].hides, p.masks[2].hides};
  Vec<T> most = hn::Load(d, running_max);
#pragma GCC unroll 2
  for (std::size_t lane = 0; lane < count; lane += kLanes<T>) {
    Vec<T> score = hn::Mul(hn::Load(d, from + lane), hn::Set(d, by));
    if (kCaps && !last) score = capped(score);
    if (scaled) hn::Store(score, d, scaled + lane);
    if (terms.distances) score = hn::Add(score, hn::LoadU(d, terms.distances + lane));
    if (kBiased) score = terms.added(score, lane);
    if (kCaps && last) score = capped(score);
    if (kBiased) score = terms.hidden_by_biases(score, lane);
    if (kMasked) score = terms.hidden_by_masks(score, lane, hides);
    score = terms.hidden_by_place(score, lane);
    if (masked) hn::Store(score, d, masked + lane);
    score = in_units<T, kBiased>(score, hn::Set(d, unit));
    most = hn::Max(most, score);
    hn::Store(score, d, strip + lane);
  }
  hn::Store(most, d, running_max);
}

/// The same of a row that sees nothing of them.
template <class T>
void hide_row(const Problem<T>& p, std::size_t count, const PanelRow<T>& at) {
  const Tag<T> d;
  hide_all(at.strip, count);
  if (at.masked) hide_all(at.masked, count);
  if (!at.scaled) return;
  const Softcap<T> capped(p.softcap);
  const bool caps = p.softcap > 0 && !p.softcap_last;
  for (std::size_t lane = 0; lane < count; lane += kLanes<T>) {
    const Vec<T> score = hn::Mul(hn::Load(d, at.from + lane), hn::Set(d, at.scale));
    hn::Store(caps ? capped(score) : score, d, at.scaled + lane);
  }
}

/// f(constant) for each of two truths.
template <class F>
HWY_INLINE void with_truth(bool truth, F f) {
  if (truth) return f(std::true_type());
  f(std::false_type());
}

/// f(caps, biased, masked): what has to be done for this problem.
template <class T, class F>
HWY_INLINE void with_terms(const Problem<T>& p, F f) {
  with_truth(p.softcap > 0, [&](auto caps) {
    with_truth(has_biases(p), [&](auto biased) {
      with_truth(has_masks(p), [&](auto masked) { f(caps, biased, masked); });
    });
  });
}

}  // namespace attn::kernel::HWY_NAMESPACE
