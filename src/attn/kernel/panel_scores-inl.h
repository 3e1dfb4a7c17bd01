// What masks show of a panel of keys, and what comes between its scaled scores and the softmax.
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

/// `count` of a row's elements from key `first` on, contiguous: where they stand if a whole panel
/// of them is there, otherwise copied, zeros in place of those that are not.
template <class T, class X>
HWY_INLINE const X* contiguous(const X* row, std::int64_t stride, std::int64_t first,
                               std::int64_t count, X (&copy)[kPanel<T>]) {
  row += first * stride;
  if (stride == 1 && count >= static_cast<std::int64_t>(kPanel<T>)) return row;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(kPanel<T>); ++i)
    copy[i] = i < count ? row[i * stride] : X(0);
  return copy;
}

/// Which lanes' bytes are not zero.
HWY_INLINE hn::Mask<Tag<float>> nonzero(const std::uint8_t* bytes, Tag<float> d) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const hn::Rebind<std::uint8_t, Tag<float>> d8;
  return hn::MaskFromVec(hn::BitCast(
      d, hn::VecFromMask(du, hn::Ne(hn::PromoteTo(du, hn::LoadU(d8, bytes)), hn::Zero(du)))));
}
HWY_INLINE hn::Mask<Tag<double>> nonzero(const std::uint8_t* bytes, Tag<double> d) {
  const hn::RebindToUnsigned<Tag<double>> du;
  const hn::Rebind<std::uint32_t, Tag<double>> d32;
  const hn::Rebind<std::uint8_t, Tag<double>> d8;
  const auto wide = hn::PromoteTo(du, hn::PromoteTo(d32, hn::LoadU(d8, bytes)));
  return hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(du, hn::Ne(wide, hn::Zero(du)))));
}

/// The scores of a tile's rows and one panel of keys, to be worked on in steps.
template <class T>
class PanelScores {
 public:
  PanelScores(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first,
              std::size_t vectors, T* scores, std::size_t stride)
      : p_(p),
        row_(row),
        rows_(rows),
        first_(first),
        vectors_(vectors),
        scores_(scores),
        stride_(stride) {}

  void softcap() const {
    const T cap = p_.softcap;
    for (std::size_t r = 0; r < rows_; ++r)
      each(r, [=](Vec<T> score, std::size_t) { return HWY_NAMESPACE::softcap<T>(score, cap); });
  }

  void add_distances() const {
    T copy[kPanel<T>];
    for (std::size_t r = 0; r < rows_; ++r) {
      const T* term = contiguous<T>(row_[r].distances, 1, first_, keys(), copy);
      each(r, [=](Vec<T> score, std::size_t lane) {
        return hn::Add(score, hn::LoadU(Tag<T>(), term + lane));
      });
    }
  }

  void add_biases() const {
    each_bias([](Vec<T> score, Vec<T> term) {
      return hn::IfThenElse(is_hidden(term), term, hn::Add(score, term));
    });
  }

  void hide_biased() const {
    each_bias(
        [](Vec<T> score, Vec<T> term) { return hn::IfThenElse(is_hidden(term), term, score); });
  }

  void hide_masked() const {
    const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
    std::uint8_t copy[kPanel<T>];
    for (std::size_t m = 0; m < p_.masks.size(); ++m) {
      if (!p_.masks[m].data) continue;
      for (std::size_t r = 0; r < rows_; ++r) {
        const auto* mask =
            contiguous<T>(row_[r].masks[m], p_.masks[m].strides.column, first_, keys(), copy);
        if (p_.masks[m].hides)
          each(r, [=](Vec<T> score, std::size_t lane) {
            return hn::IfThenElse(nonzero(mask + lane, Tag<T>()), hidden, score);
          });
        else
          each(r, [=](Vec<T> score, std::size_t lane) {
            return hn::IfThenElse(nonzero(mask + lane, Tag<T>()), score, hidden);
          });
      }
    }
  }

  /// Hides what is out of the rows' places.
  void hide_unreached() const {
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int64_t from = row_[r].place.first - first_, to = row_[r].place.last - first_;
      if (from <= 0 && to >= kWidth) continue;
      const Vec<T> least = hn::Set(d, static_cast<T>(between(0, from, kWidth)));
      const Vec<T> limit = hn::Set(d, static_cast<T>(between(0, to, kWidth)));
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
        return hn::IfThenElse(hn::And(hn::Ge(at, least), hn::Lt(at, limit)), score, hidden);
      });
    }
  }

  /// out = scores * unit, -inf in the rest of the panel, and running_max, a vector a row, raised to
  /// it. A bias of the lowest finite numbers, which hides by outweighing only, has to stay finite.
  void finish(T unit, T* out, T* running_max) const {
    const Tag<T> d;
    const Vec<T> factor = hn::Set(d, unit);
    const Vec<T> lowest = hn::Set(d, std::numeric_limits<T>::lowest());
    const bool lasts = has_biases(p_);
    for (std::size_t r = 0; r < rows_; ++r) {
      Vec<T> most = hn::Load(d, running_max + r * kLanes<T>);
      T* const to = out + r * stride_;
      each_lane([&](std::size_t lane) {
        const Vec<T> score = hn::Load(d, scores_ + r * stride_ + lane);
        Vec<T> scaled = hn::Mul(score, factor);
        if (lasts)
          scaled = hn::IfThenElse(hn::And(hn::Lt(scaled, lowest), hn::Ge(score, lowest)), lowest,
                                  scaled);
        most = hn::Max(most, scaled);
        hn::Store(scaled, d, to + lane);
      });
      hn::Store(most, d, running_max + r * kLanes<T>);
      for (std::size_t lane = vectors_ * kLanes<T>; lane < kPanel<T>; lane += kLanes<T>)
        hn::Store(hn::Set(d, -kInfinity<T>), d, to + lane);
    }
  }

  /// -inf in all of it.
  void hide() const {
    for (std::size_t r = 0; r < rows_; ++r)
      each(r, [](Vec<T>, std::size_t) { return hn::Set(Tag<T>(), -kInfinity<T>); });
  }

 private:
  static constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);

  std::int64_t keys() const { return lesser(kWidth, static_cast<std::int64_t>(p_.S) - first_); }

  static HWY_INLINE auto is_hidden(Vec<T> term) {
    return hn::Eq(term, hn::Set(Tag<T>(), -kInfinity<T>));
  }

  template <class F>
  HWY_INLINE void each_lane(F f) const {
    for (std::size_t lane = 0; lane < vectors_ * kLanes<T>; lane += kLanes<T>) f(lane);
  }

  /// score = f(score, its lane in the panel), for the vectors of row r.
  template <class F>
  HWY_INLINE void each(std::size_t r, F f) const {
    T* row = scores_ + r * stride_;
    each_lane([=](std::size_t lane) {
      hn::Store(f(hn::Load(Tag<T>(), row + lane), lane), Tag<T>(), row + lane);
    });
  }

  /// score = f(score, bias), for every bias.
  template <class F>
  HWY_INLINE void each_bias(F f) const {
    T copy[kPanel<T>];
    for (std::size_t m = 0; m < p_.biases.size(); ++m) {
      if (!p_.biases[m].data) continue;
      for (std::size_t r = 0; r < rows_; ++r) {
        const T* bias =
            contiguous<T>(row_[r].biases[m], p_.biases[m].strides.column, first_, keys(), copy);
        each(r, [=](Vec<T> score, std::size_t lane) {
          return f(score, hn::LoadU(Tag<T>(), bias + lane));
        });
      }
    }
  }

  const Problem<T>& p_;
  const Row<T>* row_;
  const std::size_t rows_;
  const std::int64_t first_;
  const std::size_t vectors_;  ///< of the panel, those that are worked on
  T* const scores_;
  const std::size_t stride_;
};

}  // namespace attn::kernel::HWY_NAMESPACE
