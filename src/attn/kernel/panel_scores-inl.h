// What masks show of a panel of keys, and what comes between its scores and the softmax.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// How much of a panel the masks let the rows of a tile see.
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

/// What one row's masks and biases say about keys [first, first + count).
template <class T>
AnyAll seen_by_row(const Problem<T>& p, const Row<T>& row, std::int64_t first, std::int64_t count) {
  AnyAll seen{true, true};
  const auto narrow = [&](AnyAll by) { seen = {seen.any && by.any, seen.all && by.all}; };
  for (std::size_t m = 0; m < row.masks.size(); ++m) {
    if (!row.masks[m] || !seen.any) continue;
    const std::int64_t column = p.masks[m].strides.column;
    const unsigned hides = p.masks[m].hides;
    narrow(any_all(row.masks[m] + first * column, column, count,
                   [=](std::uint8_t byte) -> unsigned { return (byte != 0) ^ hides; }));
  }
  for (std::size_t m = 0; m < row.biases.size(); ++m) {
    if (!row.biases[m] || !seen.any) continue;
    const std::int64_t column = p.biases[m].strides.column;
    narrow(any_all(row.biases[m] + first * column, column, count,
                   [](T x) -> unsigned { return !(x == -kInfinity<T>); }));
  }
  return seen;
}

template <class T>
HWY_INLINE bool has_masks(const Problem<T>& p) {
  return p.masks[0].data || p.masks[1].data || p.masks[2].data;
}
template <class T>
HWY_INLINE bool has_biases(const Problem<T>& p) {
  return p.biases[0].data || p.biases[1].data;
}

/// What masks and biases say about keys [first, first + count) in any of the tile's rows.
template <class T>
Seen seen_by_masks(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first,
                   std::int64_t count) {
  const bool biases = has_biases(p);
  if (!biases && !has_masks(p)) return Seen::all;
  AnyAll seen;
  for (std::size_t i = 0; i < rows; ++i) {
    if (i > 0 && row[i].masks == row[i - 1].masks && row[i].biases == row[i - 1].biases) continue;
    const AnyAll here = seen_by_row(p, row[i], first, count);
    seen = {seen.any || here.any, seen.all && here.all};
    if (seen.any && (!seen.all || biases)) return Seen::some;  // a bias has to be added anyway
  }
  return !seen.any ? Seen::none : seen.all ? Seen::all : Seen::some;
}

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

/// Which lanes' bytes are not zero.
HWY_INLINE hn::Mask<Tag<float>> nonzero(const std::uint8_t* bytes, Tag<float> d) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const hn::Rebind<std::uint8_t, Tag<float>> d8;
  return hn::RebindMask(d, hn::Ne(hn::PromoteTo(du, hn::LoadU(d8, bytes)), hn::Zero(du)));
}
HWY_INLINE hn::Mask<Tag<double>> nonzero(const std::uint8_t* bytes, Tag<double> d) {
  const hn::RebindToUnsigned<Tag<double>> du;
  const hn::Rebind<std::uint32_t, Tag<double>> d32;
  const hn::Rebind<std::uint8_t, Tag<double>> d8;
  const auto wide = hn::PromoteTo(du, hn::PromoteTo(d32, hn::LoadU(d8, bytes)));
  return hn::RebindMask(d, hn::Ne(wide, hn::Zero(du)));
}

/// Asks for what some rows' masks and biases say of a panel of keys, which a tile of scores leaves
/// time to come from memory; and the row behind them, which is the first that the next tile looks
/// at.
template <class T>
void prefetch_masks(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first) {
  const auto ask = [&](const auto* of_row, std::int64_t column) {
    if (!of_row || column == 0) return;
    const auto* bytes = reinterpret_cast<const std::byte*>(of_row + first * column);
    for (std::size_t at = 0; at < kPanel<T> * sizeof(*of_row); at += 64)
      __builtin_prefetch(bytes + at);
  };
  for (std::size_t r = 0; r <= rows; ++r) {
    for (std::size_t m = 0; m < p.masks.size(); ++m)
      ask(row[r].masks[m], p.masks[m].strides.column);
    for (std::size_t m = 0; m < p.biases.size(); ++m)
      ask(row[r].biases[m], p.biases[m].strides.column);
  }
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

template <class T>
HWY_INLINE auto is_hidden(Vec<T> term) {
  return hn::Eq(term, hn::Set(Tag<T>(), -kInfinity<T>));
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
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
    if (bias0) score = hn::IfThenElse(is_hidden<T>(hn::LoadU(d, bias0 + lane)), hidden, score);
    if (bias1) score = hn::IfThenElse(is_hidden<T>(hn::LoadU(d, bias1 + lane)), hidden, score);
    return score;
  }

  HWY_INLINE Vec<T> hidden_by_masks(Vec<T> score, std::size_t lane, const bool (&hides)[3]) const {
    const auto by = [&](const std::uint8_t* mask, bool when) {
      const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
      const auto marked = nonzero(mask + lane, Tag<T>());
      score = when ? hn::IfThenElse(marked, hidden, score) : hn::IfThenElse(marked, score, hidden);
    };
    if (mask0) by(mask0, hides[0]);
    if (mask1) by(mask1, hides[1]);
    if (mask2) by(mask2, hides[2]);
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
