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

/// What mask and bias say about keys [first, first + count) in any of the tile's rows.
template <class T>
Seen seen_by_masks(const Problem<T>& p, const Row<T>* row, std::size_t rows, std::int64_t first,
                   std::int64_t count) {
  if (!p.mask && !p.bias) return Seen::all;
  AnyAll seen;
  for (std::size_t i = 0; i < rows; ++i) {
    if (i > 0 && row[i].mask == row[i - 1].mask && row[i].bias == row[i - 1].bias) continue;
    AnyAll here{true, true};
    if (p.mask)
      here = any_all(row[i].mask + first * p.mask_strides.column, p.mask_strides.column, count,
                     [](std::uint8_t m) -> unsigned { return m != 0; });
    if (p.bias && here.any) {
      const AnyAll biased =
          any_all(row[i].bias + first * p.bias_strides.column, p.bias_strides.column, count,
                  [](T x) -> unsigned { return !(x == -kInfinity<T>); });
      here = {biased.any, here.all && biased.all};
    }
    seen = {seen.any || here.any, seen.all && here.all};
    if (seen.any && (!seen.all || p.bias)) return Seen::some;  // a bias has to be added anyway
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

  void add_alibi() const {
    for (std::size_t r = 0; r < rows_; ++r) {
      const Vec<T> slope = hn::Set(Tag<T>(), row_[r].slope);
      const auto ahead = static_cast<T>(first_ - row_[r].center);
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> distance = hn::Abs(hn::Iota(Tag<T>(), ahead + static_cast<T>(lane)));
        return hn::NegMulAdd(slope, distance, score);
      });
    }
  }

  /// Also turns to units of log(2): a bias of the lowest finite numbers, which hides by outweighing
  /// only, has to stay finite.
  void add_bias() const {
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>), log2e = hn::Set(d, static_cast<T>(kLog2e));
    const Vec<T> lowest = hn::Set(d, std::numeric_limits<T>::lowest());
    T copy[kPanel<T>];
    for (std::size_t r = 0; r < rows_; ++r) {
      const T* bias = contiguous<T>(row_[r].bias, p_.bias_strides.column, first_, keys(), copy);
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> term = hn::LoadU(d, bias + lane);
        const Vec<T> sum = hn::Add(score, term), scaled = hn::Mul(sum, log2e);
        const auto overflows = hn::And(hn::Lt(scaled, lowest), hn::Ge(sum, lowest));
        return hn::IfThenElse(hn::Eq(term, hidden), hidden,
                              hn::IfThenElse(overflows, lowest, scaled));
      });
    }
  }

  void hide_masked() const {
    const Vec<T> hidden = hn::Set(Tag<T>(), -kInfinity<T>);
    std::uint8_t copy[kPanel<T>];
    for (std::size_t r = 0; r < rows_; ++r) {
      const auto* mask = contiguous<T>(row_[r].mask, p_.mask_strides.column, first_, keys(), copy);
      each(r, [=](Vec<T> score, std::size_t lane) {
        return hn::IfThenElse(nonzero(mask + lane, Tag<T>()), score, hidden);
      });
    }
  }

  /// Hides what causal, window and lengths do.
  void hide_unreached() const {
    const Tag<T> d;
    const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int64_t from = row_[r].first - first_, to = row_[r].last - first_;
      if (from <= 0 && to >= kWidth) continue;
      const Vec<T> least = hn::Set(d, static_cast<T>(between(0, from, kWidth)));
      const Vec<T> limit = hn::Set(d, static_cast<T>(between(0, to, kWidth)));
      each(r, [=](Vec<T> score, std::size_t lane) {
        const Vec<T> at = hn::Iota(d, static_cast<T>(lane));
        return hn::IfThenElse(hn::And(hn::Ge(at, least), hn::Lt(at, limit)), score, hidden);
      });
    }
  }

  /// Multiplies by `factor`, hides what has not been computed and raises running_max, a vector a
  /// row.
  void raise_max(T factor, T* running_max) const {
    const Tag<T> d;
    for (std::size_t r = 0; r < rows_; ++r) {
      Vec<T> most = hn::Load(d, running_max + r * kLanes<T>);
      each(r, [&](Vec<T> score, std::size_t) {
        score = hn::Mul(score, hn::Set(d, factor));
        most = hn::Max(most, score);
        return score;
      });
      hn::Store(most, d, running_max + r * kLanes<T>);
      for (std::size_t lane = vectors_ * kLanes<T>; lane < kPanel<T>; lane += kLanes<T>)
        hn::Store(hn::Set(d, -kInfinity<T>), d, scores_ + r * stride_ + lane);
    }
  }

 private:
  static constexpr auto kWidth = static_cast<std::int64_t>(kPanel<T>);

  std::int64_t keys() const { return lesser(kWidth, static_cast<std::int64_t>(p_.S) - first_); }

  /// score = f(score, its lane in the panel), for the computed vectors of row r.
  template <class F>
  HWY_INLINE void each(std::size_t r, F f) const {
    T* row = scores_ + r * stride_;
    for (std::size_t lane = 0; lane < vectors_ * kLanes<T>; lane += kLanes<T>)
      hn::Store(f(hn::Load(Tag<T>(), row + lane), lane), Tag<T>(), row + lane);
  }

  const Problem<T>& p_;
  const Row<T>* row_;
  const std::size_t rows_;
  const std::int64_t first_;
  const std::size_t vectors_;  ///< those computed; the rest of the panel is hidden
  T* const scores_;
  const std::size_t stride_;
};

}  // namespace attn::kernel::HWY_NAMESPACE
