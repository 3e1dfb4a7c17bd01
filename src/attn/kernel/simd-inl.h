// Vectors of the instruction set that this is compiled for, and functions on them.
#pragma once

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>

/// For lambdas: passes arrays of vectors without storing them.
#define ATTN_INLINE __attribute__((always_inline))

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

/// 2^r = 1 + r h(r) for |r| <= 1/2, where h is a minimax fit of the relative error (3e-9, 2e-17).
/// Adding kShift rounds to an integer n and leaves n + the exponent bias in the lowest bits; for
/// kLowest that is 0, the exponent of 0.
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

/// max(t, low) and min(t, high); NaN if t is. (x86's instructions return their second operand if
/// one is NaN.)
template <class T>
HWY_INLINE Vec<T> at_least(Vec<T> low, Vec<T> t) {
  if constexpr (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
    return hn::Max(low, t);
  else
    return hn::IfThenElse(hn::Lt(t, low), low, t);
}
template <class T>
HWY_INLINE Vec<T> at_most(Vec<T> high, Vec<T> t) {
  if constexpr (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
    return hn::Min(high, t);
  else
    return hn::IfThenElse(hn::Gt(t, high), high, t);
}

/// max(most, t), where `most` is not NaN; a NaN in t is ignored, so that the order does not matter.
template <class T>
HWY_INLINE Vec<T> update_max(Vec<T> max, Vec<T> t) {
  return at_least<T>(t, max);
}

/// The lowest number whose product with `unit` > 0 is finite.
template <class T>
HWY_INLINE T lowest_to_multiply(T unit) {
  constexpr T kLowest = std::numeric_limits<T>::lowest();
  constexpr T kLess = 1 - 2 * std::numeric_limits<T>::epsilon();  // below 1, to allow for rounding
  return unit <= 1 ? kLowest : kLowest / unit * kLess;
}

/// max(t, low), but -inf if t is -inf.
template <class T>
HWY_INLINE Vec<T> finite_at_least(Vec<T> low, Vec<T> t) {
  const auto infinite = hn::Eq(t, hn::Set(Tag<T>(), -kInfinity<T>));
  return hn::IfThenElse(infinite, t, at_least<T>(low, t));
}

template <std::size_t Value>
using Constant = std::integral_constant<std::size_t, Value>;

/// Calls f(0) to f(Count - 1), unrolled.
template <std::size_t Count, class F>
HWY_INLINE void unrolled(F f) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Count; ++i) f(i);
}

/// h of 2^r = 1 + r h(r).
template <class T, std::size_t Count>
HWY_INLINE void exp2_series(const Vec<T> (&r)[Count], Vec<T> (&h)[Count]) {
  using C = Exp2Constants<T>;
  const Tag<T> d;
  unrolled<Count>([&](std::size_t i) { h[i] = hn::Set(d, C::kH[0]); });
  unrolled<std::size(C::kH) - 1>([&](std::size_t k) {
    unrolled<Count>(
        [&](std::size_t i) { h[i] = hn::MulAdd(h[i], r[i], hn::Set(d, C::kH[k + 1])); });
  });
}

/// 2^t in parts, for t >= kLowest: t = n + r and 2^t = 2^n (1 + r h).
template <class T, std::size_t Count>
struct SplitExp2 {
  Vec<T> r[Count], h[Count], power[Count];  ///< power: 2^n

  HWY_INLINE explicit SplitExp2(const Vec<T> (&t)[Count]) {
    using C = Exp2Constants<T>;
    const Tag<T> d;
    const Vec<T> shift = hn::Set(d, C::kShift);
    unrolled<Count>([&](std::size_t i) {
      const Vec<T> shifted = hn::Add(t[i], shift);
      const auto bits = hn::BitCast(hn::RebindToSigned<Tag<T>>(), shifted);
      power[i] = hn::BitCast(d, hn::ShiftLeft<C::kMantissa>(bits));
      r[i] = hn::Sub(t[i], hn::Sub(shifted, shift));
    });
    exp2_series<T>(r, h);
  }
};

#if HWY_TARGET == HWY_AVX3
/// p 2^n, or 0 if t < lowest, with an AVX-512 instruction.
HWY_INLINE Vec<float> scale_by_power(Vec<float> t, float lowest, Vec<float> p, Vec<float> n) {
  const __mmask16 normal = _mm512_cmp_ps_mask(t.raw, _mm512_set1_ps(lowest), _CMP_NLT_UQ);
  return Vec<float>{_mm512_maskz_scalef_ps(normal, p.raw, n.raw)};
}
HWY_INLINE Vec<double> scale_by_power(Vec<double> t, double lowest, Vec<double> p, Vec<double> n) {
  const __mmask8 normal = _mm512_cmp_pd_mask(t.raw, _mm512_set1_pd(lowest), _CMP_NLT_UQ);
  return Vec<double>{_mm512_maskz_scalef_pd(normal, p.raw, n.raw)};
}
#endif

/// t = 2^t for t <= 0 within 1 unit in the last place: exactly 1 for t = 0, 0 if 2^t would be
/// subnormal, NaN for NaN. Computing several vectors at once hides the latency.
template <class T, std::size_t Count>
HWY_INLINE void exp2_each(Vec<T> (&t)[Count]) {
  using C = Exp2Constants<T>;
  const Vec<T> one = hn::Set(Tag<T>(), T(1));
#if HWY_TARGET == HWY_AVX3
  Vec<T> n[Count], r[Count], h[Count];
  unrolled<Count>([&](std::size_t i) { n[i] = hn::Round(t[i]); });
  unrolled<Count>([&](std::size_t i) { r[i] = hn::Sub(t[i], n[i]); });
  exp2_series<T>(r, h);
  unrolled<Count>([&](std::size_t i) { h[i] = hn::MulAdd(h[i], r[i], one); });
  unrolled<Count>([&](std::size_t i) { t[i] = scale_by_power(t[i], C::kLowest + 1, h[i], n[i]); });
#else
  unrolled<Count>([&](std::size_t i) { t[i] = at_least<T>(hn::Set(Tag<T>(), C::kLowest), t[i]); });
  const SplitExp2<T, Count> split(t);
  // Multiplying, instead of adding n to the exponent's bits, preserves every NaN.
  unrolled<Count>([&](std::size_t i) {
    t[i] = hn::Mul(hn::MulAdd(split.h[i], split.r[i], one), split.power[i]);
  });
#endif
}
template <class T>
HWY_INLINE Vec<T> exp2(Vec<T> t) {
  Vec<T> one[] = {t};
  exp2_each<T>(one);
  return one[0];
}

/// a / b for b from 1 to about 1000, within 2 units in the last place.
template <class T>
HWY_INLINE Vec<T> divide(Vec<T> a, Vec<T> b) {
  if constexpr (std::is_same_v<T, float> && HWY_ARCH_X86) {
    // One Newton step doubles the 11 bits or more of the approximation; Arm's has only 8 bits.
    const Vec<T> reciprocal = hn::ApproximateReciprocal(b);
    const Vec<T> quotient = hn::Mul(a, reciprocal);
    return hn::MulAdd(hn::NegMulAdd(quotient, b, a), reciprocal, quotient);
  } else {
    return hn::Div(a, b);
  }
}

/// sum_i c[i] z^i.
template <class T, std::size_t Count>
HWY_INLINE Vec<T> polynomial(const T (&c)[Count], Vec<T> z) {
  const Tag<T> d;
  Vec<T> sum = hn::Set(d, c[Count - 1]);
  for (std::size_t i = Count - 1; i > 0; --i) sum = hn::MulAdd(sum, z, hn::Set(d, c[i - 1]));
  return sum;
}

/// cap * tanh(x / cap), within 7 units in the last place (double: 8). With AVX2, the last bits
/// differ between makes of processors, because their reciprocals do.
template <class T>
class Softcap;

/// tanh(y) = y P(y^2) / Q(y^2), a minimax fit of the relative error (6e-8, with rounded
/// coefficients) up to where tanh rounds to 1. All coefficients are positive, so nothing cancels.
template <>
class Softcap<float> {
 public:
  explicit Softcap(float cap)
      : cap_(hn::Set(Tag<float>(), cap)),
        limit_(hn::Set(Tag<float>(), 9.02f * cap)),
        inverse_(hn::Set(Tag<float>(), 1 / cap)) {}

  HWY_INLINE Vec<float> operator()(Vec<float> x) const {
    const Vec<float> limited = within(limit_, x);
    const Vec<float> y = hn::Mul(limited, inverse_), z = hn::Mul(y, y);
    return within(cap_,  // rounding may exceed it slightly
                  divide<float>(hn::Mul(limited, polynomial(kP, z)), polynomial(kQ, z)));
  }

 private:
  static HWY_INLINE Vec<float> within(Vec<float> limit, Vec<float> x) {
    return at_most<float>(limit, at_least<float>(hn::Neg(limit), x));
  }

  static constexpr float kP[] = {1, 0.1338372380f, 0.003498656908f, 2.065407898e-5f,
                                 1.340661360e-8f};
  static constexpr float kQ[] = {1, 0.4671704471f, 0.02588900737f, 3.290416789e-4f,
                                 7.800021535e-7f};
  Vec<float> cap_, limit_, inverse_;
};

/// tanh(y) = -e / (2 + e) for y >= 0, where e = exp(-2y) - 1 = 2^n r h + (2^n - 1), which is also
/// accurate for small y.
template <>
class Softcap<double> {
 public:
  explicit Softcap(double cap)
      : cap_(hn::Set(Tag<double>(), cap)), factor_(hn::Set(Tag<double>(), -2 * kLog2e / cap)) {}

  HWY_INLINE Vec<double> operator()(Vec<double> x) const {
    const Tag<double> d;
    const Vec<double> exponent[] = {
        at_least<double>(hn::Set(d, -80.0), hn::Mul(factor_, hn::Abs(x)))};
    const SplitExp2<double, 1> split(exponent);
    const Vec<double> power = split.power[0], rh = hn::Mul(split.r[0], split.h[0]);
    const Vec<double> e = hn::MulAdd(power, rh, hn::Sub(power, hn::Set(d, 1.0)));
    const Vec<double> tanh = hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0))), x);
    return hn::Mul(cap_, tanh);
  }

 private:
  Vec<double> cap_, factor_;
};

/// The sum of the lanes.
template <class T>
HWY_INLINE T total(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}

}  // namespace attn::kernel::HWY_NAMESPACE
