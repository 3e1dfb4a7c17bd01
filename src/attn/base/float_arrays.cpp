#include "attn/base/float_arrays.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace attn {
namespace {

/// Without branches, so that compilers vectorize loops.
[[gnu::always_inline]] inline std::uint16_t rounded_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;  // half to even
  const std::uint32_t nan = (bits >> 16 & 0x8000u) | 0x7FC0u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

[[gnu::always_inline]] inline void round_all(const float* from, std::size_t count, BFloat16* to) {
  for (std::size_t i = 0; i < count; ++i) to[i].bits = rounded_bits(from[i]);
}

// widen_vectors() and round_vectors() convert whole vectors of the first elements and return the
// number of elements, 0 without the instructions. round_with_avx2() converts all.
#if defined(__x86_64__)
constexpr std::size_t kLanes = 8;

bool has_avx2_and_f16c() {
  static const bool has_both = [] {
    constexpr unsigned kF16c = 1u << 29;
    unsigned a = 0, b = 0, features = 0, d = 0;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &features, &d) != 0 &&
           (features & kF16c) != 0;
  }();
  return has_both;
}

[[gnu::target("avx2,f16c")]] std::size_t widen_vectors(const Half* from, std::size_t count,
                                                       float* to) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return i;
}

[[gnu::target("avx2,f16c")]] std::size_t round_vectors(const float* from, std::size_t count,
                                                       Half* to) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 x = _mm256_loadu_ps(from + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0) {  // Half has one NaN only
      for (std::size_t j = i; j < i + kLanes; ++j) to[j] = Half(double(from[j]));
      continue;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return i;
}

[[gnu::target("avx2,f16c")]] void round_with_avx2(const float* from, std::size_t count,
                                                  BFloat16* to) {
  round_all(from, count, to);
}
#else
bool has_avx2_and_f16c() { return false; }
std::size_t widen_vectors(const Half*, std::size_t, float*) { return 0; }
std::size_t round_vectors(const float*, std::size_t, Half*) { return 0; }
void round_with_avx2(const float* from, std::size_t count, BFloat16* to) {
  round_all(from, count, to);
}
#endif

/// The bits of infinity.
template <class T>
std::uint64_t infinity_bits() {
  const T infinity(std::numeric_limits<double>::infinity());
  if constexpr (sizeof(T) == 2)
    return infinity.bits;
  else
    return std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(
        infinity);
}

/// Whether a number without its sign is at least `least`. Adding what is missing makes its sign bit
/// 1, without a carry into the next number, so words of several numbers are added. The loop has no
/// exit, so that compilers vectorize it.
template <class T>
bool any_at_least(std::span<const T> numbers, std::uint64_t least) {
  using Word = std::uint64_t;
  constexpr Word kEach = ~Word{0} / (~Word{0} >> 8 * (sizeof(Word) - sizeof(T)));  // 1 in each
  constexpr Word kSign = Word{1} << (8 * sizeof(T) - 1), kMagnitude = (kSign - 1) * kEach;
  const Word missing = (kSign - least) * kEach;
  const auto* const bytes = reinterpret_cast<const std::byte*>(numbers.data());
  const std::size_t words = numbers.size_bytes() / sizeof(Word);
  const std::size_t rest = numbers.size_bytes() % sizeof(Word);
  Word found = 0, last = 0;
  for (std::size_t i = 0; i < words; ++i) {
    Word word = 0;
    std::memcpy(&word, bytes + i * sizeof(Word), sizeof(Word));
    found |= (word & kMagnitude) + missing;
  }
  if (rest > 0) std::memcpy(&last, bytes + words * sizeof(Word), rest);
  found |= (last & kMagnitude) + missing;
  return (found & kSign * kEach) != 0;
}

}  // namespace

void convert_all(const Half* from, std::size_t count, float* to) {
  const std::size_t done = has_avx2_and_f16c() ? widen_vectors(from, count, to) : 0;
  for (std::size_t i = done; i < count; ++i) to[i] = float(from[i]);
}

void convert_all(const BFloat16* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = float(from[i]);
}

void convert_all(const float* from, std::size_t count, Half* to) {
  const std::size_t done = has_avx2_and_f16c() ? round_vectors(from, count, to) : 0;
  for (std::size_t i = done; i < count; ++i) to[i] = Half(double(from[i]));
}

void convert_all(const float* from, std::size_t count, BFloat16* to) {
  has_avx2_and_f16c() ? round_with_avx2(from, count, to) : round_all(from, count, to);
}

template <class T>
bool any_nan(std::span<const T> numbers) {
  return any_at_least(numbers, infinity_bits<T>() + 1);
}

template <class T>
bool all_finite(std::span<const T> numbers) {
  return !any_at_least(numbers, infinity_bits<T>());
}

template bool any_nan(std::span<const double>);
template bool any_nan(std::span<const float>);
template bool any_nan(std::span<const Half>);
template bool any_nan(std::span<const BFloat16>);
template bool all_finite(std::span<const double>);
template bool all_finite(std::span<const float>);
template bool all_finite(std::span<const Half>);
template bool all_finite(std::span<const BFloat16>);

}  // namespace attn
