// What comes between the scores of a panel of keys and the softmax.
#pragma once

#include <array>
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
  T* strip;        ///< in its units; may be `from`
  T unit;          ///< of the strip
  T* running_max;  ///< a vector, raised to what is in the strip
};

/// Adds terms to scores that are in some unit already. A term of the lowest finite numbers, which
/// hides by outweighing only, stays finite.
template <class T>
class Adder {
 public:
  explicit Adder(T unit)
      : unit_(hn::Set(Tag<T>(), unit)), lowest_(hn::Set(Tag<T>(), lowest_to_multiply(unit))) {}

  /// -inf comes to -inf, but where the score is NaN or +inf: a distance hides nothing.
  HWY_INLINE Vec<T> distance(Vec<T> score, const T* term) const {
    return hn::MulAdd(finite_at_least<T>(lowest_, hn::LoadU(Tag<T>(), term)), unit_, score);
  }
  /// -inf comes to anything: hidden_by_bias() is to follow.
  HWY_INLINE Vec<T> bias(Vec<T> score, const T* term) const {
    return hn::MulAdd(at_least<T>(lowest_, hn::LoadU(Tag<T>(), term)), unit_, score);
  }

 private:
  Vec<T> unit_, lowest_;
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

/// Scores side by side, in registers.
template <class T, std::size_t Count>
struct Scores {
  Vec<T> vectors[Count];

  /// x = f(x, j) for each vector x, of which the first score is the j-th.
  template <class F>
  HWY_INLINE void each(F f) {
    unrolled<Count>([&](std::size_t i) { vectors[i] = f(vectors[i], i * kLanes<T>); });
  }
  HWY_INLINE void load(const T* from, Vec<T> scale) {
    unrolled<Count>([&](std::size_t i) {
      vectors[i] = hn::Mul(hn::Load(Tag<T>(), from + i * kLanes<T>), scale);
    });
  }
  HWY_INLINE void store(T* to) const {
    unrolled<Count>([&](std::size_t i) { hn::Store(vectors[i], Tag<T>(), to + i * kLanes<T>); });
  }
};

/// What one row adds and hides in a run of panels.
template <class T>
struct Terms {
  const T* distances;
  std::array<const T*, 2> biases;
  std::array<const std::uint8_t*, 3> masks;
  std::array<bool, 3> hides;  ///< whether what the masks mark is hidden
  std::int64_t from, to;      ///< what is seen, in the run
  bool limits;

  HWY_INLINE Terms(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::int64_t width,
                   Room<T>& room) {
    const auto here = [&](const auto* all, std::int64_t column, auto* copy) {
      const auto keys = static_cast<std::int64_t>(p.S);
      return all ? contiguous(all, column, first, width, keys, copy) : nullptr;
    };
    distances = here(row.distances, 1, room.distances);
    for (std::size_t m = 0; m < biases.size(); ++m)
      biases[m] = here(row.biases[m], p.biases[m].strides.column, room.biases[m]);
    for (std::size_t m = 0; m < masks.size(); ++m) {
      masks[m] = here(row.masks[m], p.masks[m].strides.column, room.masks[m]);
      hides[m] = p.masks[m].hides;
    }
    from = between(0, row.place.first - first, width);
    to = between(0, row.place.last - first, width);
    limits = from > 0 || to < width;
  }

  /// To be kept like finish_panel(), bit for bit, as is hide_in().
  template <std::size_t Count>
  HWY_INLINE void add_to(Scores<T, Count>& scores, std::size_t lane, const Adder<T>& adder) const {
    if (distances)
      scores.each([&](Vec<T> x, std::size_t j) { return adder.distance(x, distances + lane + j); });
    for (const T* bias : biases)
      if (bias)
        scores.each([&](Vec<T> x, std::size_t j) { return adder.bias(x, bias + lane + j); });
  }

  template <std::size_t Count>
  HWY_INLINE void hide_in(Scores<T, Count>& scores, std::size_t lane) const {
    for (const T* bias : biases)
      if (bias)
        scores.each([&](Vec<T> x, std::size_t j) { return hidden_by_bias<T>(x, bias + lane + j); });
    for (std::size_t m = 0; m < masks.size(); ++m)
      if (masks[m])
        scores.each([&](Vec<T> x, std::size_t j) {
          return hidden_by_mask<T>(x, masks[m] + lane + j, hides[m]);
        });
    if (limits) scores.each([&](Vec<T> x, std::size_t j) { return hidden_by_place(x, lane + j); });
  }

 private:
  HWY_INLINE Vec<T> hidden_by_place(Vec<T> score, std::size_t lane) const {
    const Tag<T> d;
    const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
    const auto seen = hn::And(hn::Ge(at, hn::Set(d, static_cast<T>(from))),
                              hn::Lt(at, hn::Set(d, static_cast<T>(to))));
    return hn::IfThenElse(seen, score, hn::Set(d, -kInfinity<T>));
  }
};

/// score * unit, not below the lowest finite number if the score is not.
template <class T>
HWY_INLINE Vec<T> in_units(Vec<T> score, Vec<T> unit, Vec<T> lowest) {
  return hn::Mul(finite_at_least<T>(lowest, score), unit);
}

/// -inf in `count` elements.
template <class T>
HWY_INLINE void hide_all(T* scores, std::size_t count) {
  for (std::size_t lane = 0; lane < count; lane += kLanes<T>)
    hn::Store(hn::Set(Tag<T>(), -kInfinity<T>), Tag<T>(), scores + lane);
}

/// From scores to what the softmax takes, for one row and `count` keys from `first` on, in one
/// pass. In units of 1 where stages are kept or capped, otherwise in the strip's from the start.
template <class T, bool kStages>
void finish_row(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::size_t count,
                const PanelRow<T>& at) {
  const Tag<T> d;
  Room<T> room;
  const Terms<T> terms(p, row, first, static_cast<std::int64_t>(count), room);
  const Adder<T> adder(kStages ? T(1) : at.unit);
  const Vec<T> scale = hn::Set(d, at.scale), unit = hn::Set(d, at.unit);
  const Vec<T> lowest = hn::Set(d, lowest_to_multiply(at.unit));
  const T* const from = at.from;
  T *const scaled = at.scaled, *const masked = at.masked, *const strip = at.strip;
  const Softcap<T> softcap(p.softcap);
  const bool caps = p.softcap > 0, last = p.softcap_last;
  Vec<T> most = hn::Load(d, at.running_max);
  const auto finish = [&](auto vectors, std::size_t lane) {
    Scores<T, decltype(vectors)::value> scores;
    const auto cap = [&] { scores.each([&](Vec<T> x, std::size_t) { return softcap(x); }); };
    scores.load(from + lane, scale);
    if (kStages && caps && !last) cap();
    if (kStages && scaled) scores.store(scaled + lane);
    terms.add_to(scores, lane, adder);
    if (kStages && caps && last) cap();
    terms.hide_in(scores, lane);
    if (kStages && masked) scores.store(masked + lane);
    if (kStages) scores.each([&](Vec<T> x, std::size_t) { return in_units<T>(x, unit, lowest); });
    for (const Vec<T>& x : scores.vectors) most = raised<T>(most, x);
    scores.store(strip + lane);
  };
  std::size_t lane = 0;
  for (; lane + kPanel<T> <= count; lane += kPanel<T>)
    finish(std::integral_constant<std::size_t, kTileVectors>(), lane);
  for (; lane < count; lane += kLanes<T>) finish(std::integral_constant<std::size_t, 1>(), lane);
  hn::Store(most, d, at.running_max);
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

}  // namespace attn::kernel::HWY_NAMESPACE
