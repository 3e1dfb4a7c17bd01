// The terms of sums, and their factors as bfloat16: rounding and pairs (see FactorForm).
//
// Instructions of AVX-512 BF16 are written as assembly, because the file is compiled for processors
// without them; only Isa::avx512_bf16 and Isa::amx_bf16 use pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/simd-inl.h"

#if HWY_TARGET == HWY_AVX3
#define ATTN_HAS_PAIRS 1
#else
#define ATTN_HAS_PAIRS 0
#endif

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
inline constexpr bool kMultipliesPairs = ATTN_HAS_PAIRS ? std::is_same_v<T, float> : false;

/// Subnormal numbers become 0 of the same sign.
template <class D>
HWY_INLINE hn::Vec<D> without_subnormal(D d, hn::Vec<D> x) {
  const auto small = hn::Lt(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::min()));
  return hn::IfThenElse(small, hn::And(x, hn::Set(d, -0.0F)), x);
}

/// Rounded to bfloat16, to nearest with ties to even. Subnormal numbers become 0.
template <class D>
HWY_INLINE hn::Vec<D> rounded_to_bfloat16(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto up = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  const auto is_nan = hn::RebindMask(d32, hn::Ne(x, x));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
  const auto upper = hn::And(hn::IfThenElse(is_nan, quiet, up), hn::Set(d32, 0xffff0000u));
  const auto small = hn::Lt(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::min()));
  const auto sign = hn::And(bits, hn::Set(d32, 0x80000000u));
  return hn::BitCast(d, hn::IfThenElse(hn::RebindMask(d32, small), sign, upper));
}

/// Rounds elements as rounded_to_bfloat16(). Does nothing with double, which has no such factors.
template <class T>
HWY_NOINLINE void round_to_bfloat16(T* x, std::size_t count) {
  if constexpr (std::is_same_v<T, float>) {
    const auto round = [](auto d, float* at) {
      hn::StoreU(rounded_to_bfloat16(d, hn::LoadU(d, at)), d, at);
    };
    std::size_t i = 0;
    for (; i + kLanes<float> <= count; i += kLanes<float>) round(Tag<float>(), x + i);
    for (; i < count; ++i) round(hn::CappedTag<float, 1>(), x + i);
  }
}

#if ATTN_HAS_PAIRS
/// `lower`, then `upper`, rounded as round_to_bfloat16() does.
HWY_INLINE Vec<float> rounded_pairs(Vec<float> lower, Vec<float> upper) {
  Vec<float> pairs;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs.raw) : "v"(upper.raw), "v"(lower.raw));
  return pairs;
}

/// The same numbers as floats.
HWY_INLINE Vec<float> rounded_by_instruction(Vec<float> x) {
  __m256i rounded;
  asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x.raw));
  return Vec<float>{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16))};
}

/// Rounds `columns` numbers as round_to_bfloat16() does, to pairs. An odd last one is paired with
/// 0.
HWY_INLINE void round_to_pairs(const float* from, std::size_t columns, float* to) {
  const Tag<float> d;
  constexpr std::size_t kNumbers = 2 * kLanes<float>;
  std::size_t i = 0;
  for (; i + kNumbers <= columns; i += kNumbers)
    hn::StoreU(rounded_pairs(hn::LoadU(d, from + i), hn::LoadU(d, from + i + kLanes<float>)), d,
               to + i / 2);
  if (i == columns) return;
  HWY_ALIGN float rest[kNumbers] = {}, pairs[kLanes<float>];
  std::memcpy(rest, from + i, (columns - i) * sizeof(float));
  hn::Store(rounded_pairs(hn::Load(d, rest), hn::Load(d, rest + kLanes<float>)), d, pairs);
  std::memcpy(to + i / 2, pairs, (columns - i + 1) / 2 * sizeof(float));
}

/// Copies `columns` bfloat16 numbers as pairs. An odd last one is paired with 0.
HWY_INLINE void copy_pairs_of_row(const std::byte* from, std::size_t columns, float* to) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kBytes = hn::MaxLanes(d);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
  auto* const out = reinterpret_cast<std::uint8_t*>(to);
  const std::size_t count = 2 * columns;
  std::size_t i = 0;
  for (; i + kBytes <= count; i += kBytes) hn::StoreU(hn::LoadU(d, bytes + i), d, out + i);
  if (i < count) std::memcpy(out + i, bytes + i, count - i);
  if (columns % 2 != 0) std::memset(out + count, 0, 2);
}
#endif

/// What a query element a and a key element b add to a score, or a weight and a value to a result.
enum class Term : std::uint8_t {
  product,   ///< a b
  pairs,     ///< the sum of both products, with one rounding or two; subnormal factors and results
             ///< count as 0
  tiles,     ///< pairs in tiles (amx-inl.h), which have another order of additions
  distance,  ///< -(a - b)^2
};

/// sum + the term of a and b.
template <class T, Term kTerm>
HWY_INLINE Vec<T> add_term(Vec<T> a, Vec<T> b, Vec<T> sum) {
  if constexpr (kTerm == Term::product) {
    return hn::MulAdd(a, b, sum);
  } else if constexpr (kTerm == Term::distance) {
    const Vec<T> difference = hn::Sub(b, a);
    return hn::NegMulAdd(difference, difference, sum);
  } else {
    static_assert(kMultipliesPairs<T> && kTerm == Term::pairs);
#if ATTN_HAS_PAIRS
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#endif
    return sum;
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
