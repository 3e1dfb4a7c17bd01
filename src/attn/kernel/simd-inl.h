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

/// Adding kShift rounds to an integer n and leaves n + the bias of exponents in the lowest bits.
/// e^r = 1 + r + r^2 q(r) for |r| <= log(2) / 2, q a minimax fit of the relative error (3e-9,
/// 4e-18).
template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLowest = -87.0f;
  static constexpr float kLog2e = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 3.19461849e-5f;
  static constexpr float kShift = 0x1.8p23f + 127;
  static constexpr int kMantissa = 23;
  static constexpr float kQ[] = {0.001381446734f, 0.008368780422f, 0.04166839421f, 0.1666652011f,
                                 0.4999999341f};
};
template <>
struct ExpConstants<double> {
  static constexpr double kLowest = -708.0;
  static constexpr double kLog2e = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa3p-1, kLn2Low = 0x1.3de6af278ece6p-42;
  static constexpr double kShift = 0x1.8p52 + 1023;
  static constexpr int kMantissa = 52;
  static constexpr double kQ[] = {
      0x1.ad7efcbee77a9p-26, 0x1.28adce6b7b3fdp-22, 0x1.71df262fd34dep-19, 0x1.a01999add478fp-16,
      0x1.a01a0129b2e23p-13, 0x1.6c16c1844afdcp-10, 0x1.1111111127e87p-7,  0x1.55555555507f1p-5,
      0x1.55555555554f9p-3,  0x1.000000000000ap-1};
};

/// e^t in parts: t = n log(2) + r, e^t = 2^n (1 + r h), where h = 1 + r q(r).
template <class T>
struct SplitExp {
  Vec<T> r, h, power;  ///< power: 2^n
};

template <class T>
HWY_INLINE SplitExp<T> split_exp(Vec<T> t) {
  using C = ExpConstants<T>;
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  const Vec<T> shift = hn::Set(d, C::kShift);
  const Vec<T> shifted = hn::MulAdd(t, hn::Set(d, C::kLog2e), shift);
  const Vec<T> n = hn::Sub(shifted, shift);
  SplitExp<T> split;
  split.power = hn::BitCast(d, hn::ShiftLeft<C::kMantissa>(hn::BitCast(di, shifted)));
  split.r = hn::NegMulAdd(n, hn::Set(d, C::kLn2High), t);
  split.r = hn::NegMulAdd(n, hn::Set(d, C::kLn2Low), split.r);
  Vec<T> q = hn::Set(d, C::kQ[0]);
  for (std::size_t i = 1; i < std::size(C::kQ); ++i)
    q = hn::MulAdd(q, split.r, hn::Set(d, C::kQ[i]));
  split.h = hn::MulAdd(q, split.r, hn::Set(d, T(1)));
  return split;
}

/// e^t for t <= 0 within 1 unit in the last place; 0 below kLowest and for -inf; NaN for NaN and
/// inf.
template <class T>
HWY_INLINE Vec<T> exp(Vec<T> t) {
  const Tag<T> d;
  const SplitExp<T> split = split_exp<T>(t);
  const Vec<T> e = hn::Mul(hn::MulAdd(split.h, split.r, hn::Set(d, T(1))), split.power);
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(d, ExpConstants<T>::kLowest)), e);
}

/// tanh(x) = -e / (2 + e) for x >= 0, e = e^(-2x) - 1 = 2^n r h + (2^n - 1), which keeps small x.
template <class T>
HWY_INLINE Vec<T> tanh(Vec<T> x) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T(1));
  const Vec<T> least = hn::Set(d, T(-60));  // a comparison keeps NaN, which Max need not
  const Vec<T> doubled = hn::Mul(hn::Set(d, T(-2)), hn::Abs(x));
  const Vec<T> t = hn::IfThenElse(hn::Lt(doubled, least), least, doubled);
  const SplitExp<T> split = split_exp<T>(t);
  const Vec<T> e = hn::MulAdd(split.power, hn::Mul(split.r, split.h), hn::Sub(split.power, one));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, T(2)))), x);
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
