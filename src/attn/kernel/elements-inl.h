// The elements of keys and values that a few rows read where they are stored. An element type is T,
// BFloat16 or Half, or Rounded of these, for factors that are rounded to bfloat16 (by an
// instruction of AVX-512 BF16: RoundedFast).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attn/base/dtype.h"
#include "attn/kernel/pack-inl.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/terms-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class Element>
struct Rounded {};

template <class Element>
struct RoundedFast {};

template <class Element>
struct ElementTraits {
  using Stored = Element;
  static constexpr bool kIsRounded = false;
};
template <class Element>
struct ElementTraits<Rounded<Element>> {
  using Stored = Element;
  static constexpr bool kIsRounded = true;
};
template <class Element>
struct ElementTraits<RoundedFast<Element>> : ElementTraits<Rounded<Element>> {};
template <class Element>
using ElementOf = typename ElementTraits<Element>::Stored;
template <class Element>
inline constexpr bool kIsNarrow = sizeof(ElementOf<Element>) == 2;

/// A number as a factor. Numbers that are stored in bfloat16 need no other rounding.
template <class T, class Element>
HWY_INLINE Vec<T> factor_of(Vec<T> number) {
  if constexpr (!ElementTraits<Element>::kIsRounded) return number;
#if ATTN_HAS_PAIRS
  else if constexpr (std::is_same_v<Element, RoundedFast<ElementOf<Element>>>)
    return rounded_by_instruction(number);
#endif
  else if constexpr (std::is_same_v<ElementOf<Element>, BFloat16>)
    return without_subnormal(Tag<T>(), number);
  else
    return rounded_to_bfloat16(Tag<T>(), number);
}

/// The factors of contiguous elements.
template <class T, class Element>
HWY_INLINE Vec<T> load_factors(const ElementOf<Element>* from) {
  const Tag<T> d;
  if constexpr (kIsNarrow<Element>) {
    using Narrow = std::conditional_t<std::is_same_v<ElementOf<Element>, Half>, hwy::float16_t,
                                      hwy::bfloat16_t>;
    const hn::Rebind<Narrow, Tag<T>> narrow;
    return factor_of<T, Element>(
        hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const Narrow*>(from))));
  } else {
    return factor_of<T, Element>(hn::LoadU(d, from));
  }
}

/// How many elements share the bits of a T.
template <class Element>
inline constexpr std::size_t kElementsPerLane = kIsNarrow<Element> ? 2 : 1;

/// Calls f(i, factors) for the i-th elements of all lanes.
template <class T, class Element, class F>
HWY_INLINE void each_factor(Vec<T> lanes, F f) {
  if constexpr (!kIsNarrow<Element>) {
    f(Constant<0>(), factor_of<T, Element>(lanes));
  } else {
    const Tag<float> d;
    const hn::RebindToUnsigned<Tag<float>> d32;
    const auto bits = hn::BitCast(d32, lanes);
    const auto number = [&](auto upper) {
      if constexpr (std::is_same_v<ElementOf<Element>, BFloat16>) {
        const auto wide =
            upper ? hn::And(bits, hn::Set(d32, 0xffff0000u)) : hn::ShiftLeft<16>(bits);
        return factor_of<T, Element>(hn::BitCast(d, wide));
      } else {
        const hn::Rebind<std::uint16_t, Tag<float>> d16;
        const hn::Rebind<hwy::float16_t, Tag<float>> half;
        const auto lower = upper ? hn::ShiftRight<16>(bits) : hn::And(bits, hn::Set(d32, 0xffffu));
        return factor_of<T, Element>(
            hn::PromoteTo(d, hn::BitCast(half, hn::TruncateTo(d16, lower))));
      }
    };
    f(Constant<0>(), number(std::false_type()));
    f(Constant<1>(), number(std::true_type()));
  }
}

/// Whether load_split_factors() is faster than load_factors().
template <class Element>
inline constexpr bool kIsSplit =
    std::is_same_v<ElementOf<Element>, BFloat16> || std::is_same_v<Element, RoundedFast<float>>;

/// The factors of two vectors of contiguous elements, those of even columns and those of odd ones.
template <class T, class Element>
HWY_INLINE void load_split_factors(const ElementOf<Element>* from, Vec<T>& even, Vec<T>& odd) {
  const Tag<T> d;
  const auto split = [&](auto element, Vec<T> pairs) ATTN_INLINE {
    each_factor<T, typename decltype(element)::type>(
        pairs, [&](std::size_t i, Vec<T> factors) ATTN_INLINE { (i == 0 ? even : odd) = factors; });
  };
#if ATTN_HAS_PAIRS
  if constexpr (std::is_same_v<Element, RoundedFast<float>>)
    return split(Type<BFloat16>(),
                 rounded_pairs(hn::LoadU(d, from), hn::LoadU(d, from + kLanes<T>)));
  else
#endif
    split(Type<Element>(), hn::LoadU(d, reinterpret_cast<const T*>(from)));
}

/// Whether elements of 16 bits are converted in registers. Targets without vectors gain little from
/// it, and compile slowly.
inline constexpr bool kReadsNarrow = HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

/// Calls f(Type<Element>()) for the type of the rows' elements and returns true, unless they have
/// to be converted in memory.
template <class T, class F>
HWY_INLINE bool with_element(const Rows<T>& rows, F f) {
  const auto call = [&]<class Stored>(Type<Stored> stored) {
    const bool is_stored = rows.is_plain(dtype_of<Stored>);
    if (is_stored) f(stored);
    return is_stored;
  };
  if (call(Type<T>())) return true;
  if constexpr (kReadsNarrow && std::is_same_v<T, float>) {
    if (call(Type<BFloat16>())) return true;
    if constexpr (kWidensAll<hwy::float16_t>) return call(Type<Half>());
  }
  return false;
}

/// The same for factors that are numbers or, if `rounds`, rounded ones. Float16 numbers that are
/// rounded have to be converted.
template <class T, class F>
HWY_INLINE bool with_element(const Rows<T>& rows, bool rounds, F f) {
  if (rounds && rows.is_plain(DType::f16)) return false;
  return with_element(rows, [&]<class Stored>(Type<Stored> stored) {
    if constexpr (std::is_same_v<T, float> && !std::is_same_v<Stored, Half>)
      if (rounds) return f(Type<Rounded<Stored>>());
    f(stored);
  });
}

#if ATTN_HAS_PAIRS
/// The same for the products of tiles, which take subnormal numbers as 0.
template <bool kRounds, class F>
HWY_INLINE bool with_element_as_in_tiles(const Rows<float>& rows, F f) {
  if (rows.is_plain(DType::f16)) return false;
  return with_element(rows, [&]<class Stored>(Type<Stored> stored) {
    if constexpr (kRounds && std::is_same_v<Stored, float>)
      f(Type<RoundedFast<float>>());
    else if constexpr (!std::is_same_v<Stored, Half>)
      f(stored);
  });
}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
