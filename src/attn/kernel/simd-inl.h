// Vectors of the instruction set that this is compiled for, and the functions of them.
#pragma once

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace attn::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
inline constexpr std::size_t kLanes = hn::MaxLanes(Tag<T>());
template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

inline constexpr double kLog2e = 1.4426950408889634074;  ///< log2(e): 2^(t log2(e)) = e^t

/// 2^r = 1 + r h(r) for |r| <= 1/2, h a minimax fit of the relative error (3e-9, 2e-17). Adding
/// kShift rounds to an integer n and leaves n + the bias of exponents in the lowest bits; for
/// kLowest that is 0, which as an exponent makes the number 0.
template <class T>
struct Exp2Constants;
template <>
struct Exp2Constants<float> {
  static constexpr float kLowest = -127;
  static constexpr float kShift = 0x1.8p23f + 127;
  static constexpr int kMantissa = 23;
  static constexpr float kH[] = {0.0001559508785f, 0.001340679754f, 0.009617691128f,
                                 0.05550310129f,   0.240226528f,    0.6931472152f};
};
template <>
struct Exp2Constants<double> {
  static constexpr double kLowest = -1023;
  static constexpr double kShift = 0x1.8p52 + 1023;
  static constexpr int kMantissa = 52;
  static constexpr double kH[] = {
      0x1.c0617cb107b2bp-32, 0x1.e60698cdb2591p-28, 0x1.b54177a84c8b9p-24, 0x1.62bfd44f2580ap-20,
      0x1.ffcbee2bc2af5p-17, 0x1.430913097b393p-13, 0x1.5d87fe7bc0ca9p-10, 0x1.3b2ab6fba1db8p-7,
      0x1.c6b08d7048f0cp-5,  0x1.ebfbdff82c598p-3,  0x1.62e42fefa39f3p-1};
};

/// The greater of t and low; NaN where t is.
template <class T>
HWY_INLINE Vec<T> at_least(T low, Vec<T> t) {
  const Vec<T> limit = hn::Set(Tag<T>(), low);
  if constexpr (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
    return hn::Max(limit, t);  // x86's instruction gives its second operand where one is NaN
  else
    return hn::IfThenElse(hn::Lt(t, limit), limit, t);
}

/// 2^t in parts, for t >= kLowest: t = n + r, 2^t = 2^n (1 + r h).
template <class T>
struct SplitExp2 {
  Vec<T> r, h, power;  ///< power: 2^n
};

/// h of 2^r = 1 + r h(r).
template <class T>
HWY_INLINE Vec<T> exp2_series(Vec<T> r) {
  using C = Exp2Constants<T>;
  const Tag<T> d;
  Vec<T> h = hn::Set(d, C::kH[0]);
  for (std::size_t i = 1; i < std::size(C::kH); ++i) h = hn::MulAdd(h, r, hn::Set(d, C::kH[i]));
  return h;
}

template <class T>
HWY_INLINE SplitExp2<T> split_exp2(Vec<T> t) {
  using C = Exp2Constants<T>;
  const Tag<T> d;
  const Vec<T> shift = hn::Set(d, C::kShift);
  const Vec<T> shifted = hn::Add(t, shift);
  SplitExp2<T> split;
  split.power = hn::BitCast(
      d, hn::ShiftLeft<C::kMantissa>(hn::BitCast(hn::RebindToSigned<Tag<T>>(), shifted)));
  split.r = hn::Sub(t, hn::Sub(shifted, shift));
  split.h = exp2_series<T>(split.r);
  return split;
}

#if HWY_TARGET == HWY_AVX3
/// p 2^n, or 0 where t is less than `lowest`: an instruction of AVX-512's.
HWY_INLINE Vec<float> scale_by_power(Vec<float> t, float lowest, Vec<float> p, Vec<float> n) {
  const __mmask16 normal = _mm512_cmp_ps_mask(t.raw, _mm512_set1_ps(lowest), _CMP_NLT_UQ);
  return Vec<float>{_mm512_maskz_scalef_ps(normal, p.raw, n.raw)};
}
HWY_INLINE Vec<double> scale_by_power(Vec<double> t, double lowest, Vec<double> p, Vec<double> n) {
  const __mmask8 normal = _mm512_cmp_pd_mask(t.raw, _mm512_set1_pd(lowest), _CMP_NLT_UQ);
  return Vec<double>{_mm512_maskz_scalef_pd(normal, p.raw, n.raw)};
}
#endif

/// 2^t for t <= 0 within 1 unit in the last place, and 1 for 0; 0 from where 2^t is no longer a
/// normal number down to -inf; NaN for NaN.
template <class T>
HWY_INLINE Vec<T> exp2(Vec<T> t) {
  const Vec<T> one = hn::Set(Tag<T>(), T(1));
#if HWY_TARGET == HWY_AVX3
  const Vec<T> n = hn::Round(t), r = hn::Sub(t, n);
  return scale_by_power(t, Exp2Constants<T>::kLowest + 1, hn::MulAdd(exp2_series<T>(r), r, one), n);
#else
  const SplitExp2<T> split = split_exp2<T>(at_least(Exp2Constants<T>::kLowest, t));
  // A product, rather than n added to the exponent's bits, keeps every NaN one.
  return hn::Mul(hn::MulAdd(split.h, split.r, one), split.power);
#endif
}

/// a / b for b of about 1, within 2 units in the last place.
template <class T>
HWY_INLINE Vec<T> divide(Vec<T> a, Vec<T> b) {
  if constexpr (std::is_same_v<T, float> && HWY_ARCH_X86) {
    // A table's dozen bits, doubled by one step of Newton; Arm's table has but eight.
    const Vec<T> reciprocal = hn::ApproximateReciprocal(b);
    const Vec<T> quotient = hn::Mul(a, reciprocal);
    return hn::MulAdd(hn::NegMulAdd(quotient, b, a), reciprocal, quotient);
  } else {
    return hn::Div(a, b);
  }
}

/// cap * tanh(x / cap), where tanh(y) = -e / (2 + e) for y >= 0, e = e^(-2y) - 1 = 2^n r h + (2^n -
/// 1): this keeps small y.
template <class T>
HWY_INLINE Vec<T> softcap(Vec<T> x, T cap) {
  const Tag<T> d;
  const Vec<T> exponent = hn::Mul(hn::Set(d, static_cast<T>(-2 * kLog2e) / cap), hn::Abs(x));
  const SplitExp2<T> split = split_exp2<T>(at_least(T(-80), exponent));
  const Vec<T> e =
      hn::MulAdd(split.power, hn::Mul(split.r, split.h), hn::Sub(split.power, hn::Set(d, T(1))));
  const Vec<T> tanh = hn::CopySign(divide<T>(e, hn::Add(e, hn::Set(d, T(2)))), x);
  return hn::Mul(hn::Set(d, cap), tanh);
}

/// The greatest and the sum of the lanes; which of several NaNs and others wins is left open.
template <class T>
HWY_INLINE T greatest(Vec<T> v) {
  return hn::GetLane(hn::MaxOfLanes(Tag<T>(), v));
}
template <class T>
HWY_INLINE T total(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}

}  // namespace attn::kernel::HWY_NAMESPACE
