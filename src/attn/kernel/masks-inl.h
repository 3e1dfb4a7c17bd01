// The visibility of a panel of keys to a group of rows, by masks and biases.
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// How many of a panel's keys are visible to a group of rows.
enum class Visibility { none, some, all };

HWY_INLINE std::int64_t min64(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HWY_INLINE std::int64_t max64(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
HWY_INLINE std::int64_t clamp64(std::int64_t low, std::int64_t x, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// Whether any and whether all elements make their key visible.
struct AnyAll {
  bool any = false, all = true;
};
template <class X, class IsSeen>
HWY_INLINE AnyAll any_all(const X* x, std::int64_t stride, std::int64_t count, IsSeen is_visible) {
  unsigned any = 0, all = 1;
  if (stride == 1) {  // a separate loop, which the compiler vectorizes
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned visible = is_visible(x[i]);
      any |= visible;
      all &= visible;
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const unsigned visible = is_visible(x[i * stride]);
      any |= visible;
      all &= visible;
    }
  }
  return {any != 0, all != 0};
}

template <class T>
HWY_INLINE bool has_masks(const AttentionProblem<T>& p) {
  return p.masks[0].data || p.masks[1].data || p.masks[2].data;
}
template <class T>
HWY_INLINE bool has_biases(const AttentionProblem<T>& p) {
  return p.biases[0].data || p.biases[1].data;
}

/// Whether any and whether all of mask m's bytes of keys [first, first + count) are nonzero.
/// Consecutive rows that share a mask row are read once.
template <class T>
HWY_INLINE AnyAll nonzero_bytes(const Row<T>* row, std::size_t rows, std::size_t m,
                                std::int64_t column, std::int64_t first, std::int64_t count) {
  constexpr std::size_t kWidth = kPanel<T>;
  const hn::CappedTag<std::uint8_t, kWidth> d;
  AnyAll found;
  auto any = hn::Zero(d), least = hn::Set(d, std::uint8_t{0xff});
  for (std::size_t r = 0; r < rows; ++r) {
    if (r > 0 && row[r].masks[m] == row[r - 1].masks[m]) continue;
    const std::uint8_t* bytes = row[r].masks[m] + first * column;
    if (column == 1 && count == static_cast<std::int64_t>(kWidth)) {
      for (std::size_t i = 0; i < kWidth; i += hn::MaxLanes(d)) {
        const auto here = hn::LoadU(d, bytes + i);
        any = hn::Or(any, here);
        least = hn::Min(least, here);
      }
    } else {
      const AnyAll here = any_all(bytes, column, count, [](std::uint8_t x) { return x != 0; });
      found = {found.any || here.any, found.all && here.all};
    }
  }
  return {found.any || !hn::AllTrue(d, hn::Eq(any, hn::Zero(d))),
          found.all && hn::AllTrue(d, hn::Ne(least, hn::Zero(d)))};
}

/// Whether any of `count` numbers is not -inf. Usually the first one decides.
template <class T>
HWY_INLINE bool adds_to_any(const T* bias, std::int64_t column, std::int64_t count) {
  const Tag<T> d;
  const Vec<T> hidden = hn::Set(d, -kInfinity<T>);
  constexpr auto kStep = static_cast<std::int64_t>(kLanes<T>);
  std::int64_t i = 0;
  if (column == 1)
    for (; i + kStep <= count; i += kStep)
      if (!hn::AllTrue(d, hn::Eq(hn::LoadU(d, bias + i), hidden))) return true;
  for (; i < count; ++i)
    if (!(bias[i * column] == -kInfinity<T>)) return true;
  return false;
}

/// The visibility of keys [first, first + count) to the rows of a group.
template <class T>
Visibility panel_visibility(const AttentionProblem<T>& p, const Row<T>* row, std::size_t rows,
                            std::int64_t first, std::int64_t count) {
  bool all = true;
  for (std::size_t m = 0; m < p.masks.size(); ++m) {
    if (!p.masks[m].data) continue;
    const std::int64_t column = p.masks[m].strides.column;
    const AnyAll set = nonzero_bytes(row, rows, m, column, first, count);
    if (p.masks[m].hides ? set.all : !set.any) return Visibility::none;
    all = all && (p.masks[m].hides ? !set.any : set.all);
  }
  for (std::size_t m = 0; m < p.biases.size(); ++m) {
    if (!p.biases[m].data) continue;
    const std::int64_t column = p.biases[m].strides.column;
    bool any = false;
    for (std::size_t r = 0; r < rows && !any; ++r)
      any = adds_to_any(row[r].biases[m] + first * column, column, count);
    if (!any) return Visibility::none;
    all = false;  // it must be added anyway
  }
  return all ? Visibility::all : Visibility::some;
}

/// The lanes whose bytes are nonzero.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE hn::Mask<Tag<float>> nonzero(const std::uint8_t* bytes, Tag<float>) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return hn::Mask<Tag<float>>{_mm_test_epi8_mask(x, x)};
}
HWY_INLINE hn::Mask<Tag<double>> nonzero(const std::uint8_t* bytes, Tag<double>) {
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return hn::Mask<Tag<double>>{static_cast<__mmask8>(_mm_test_epi8_mask(x, x))};
}
#else
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
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
