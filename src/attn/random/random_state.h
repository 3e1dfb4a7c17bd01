// numpy.random.RandomState, which np.random.seed(), np.random.rand() etc. use, bit for bit.
// MT19937 with the legacy distributions, which NumPy guarantees not to change (NEP 19). A sequence
// of calls gives the same numbers as in NumPy, including state that a call keeps for the next one
// (the second normal of a pair).
//
// Integers from an interval, computed from random bits as in NumPy. RandomState and Generator
// differ only in the source of the bits and in the method that reduces a word to a range. int64 and
// uint64 use 32-bit words if the range fits. Narrower dtypes split a 32-bit word, low end first;
// the rest of a word is discarded at the end of a call.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "attn/base/error.h"
#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

enum class Rejection {
  masked,  ///< keep as many bits as the range has, and reject numbers beyond it
  lemire,  ///< the high half of word * size; Lemire, ACM TOMACS 29:1 (2019), arXiv:1805.10941
};

/// high - 1 - low. Throws Error (data) if low >= high, if dtype cannot represent a bound, or if
/// dtype is neither an integer type nor bool.
std::uint64_t checked_range(int128 low, int128 high, DType dtype);

/// Throws Error (data) if a standard deviation is negative or -0.
void check_scale(double scale);

/// Words of kBits bits from `bits`, which has next32() and next64().
template <int kBits, class Bits>
class Words {
 public:
  static constexpr std::uint64_t kMax = ~std::uint64_t{0} >> (64 - kBits);

  explicit Words(Bits& bits) : bits_(bits) {}

  std::uint64_t next() {
    if constexpr (kBits == 64) {
      return bits_.next64();
    } else {
      if (left_ == 0) {
        word_ = bits_.next32();
        left_ = 32 / kBits;
      }
      const std::uint64_t value = word_ & kMax;
      word_ >>= kBits;
      --left_;
      return value;
    }
  }

 private:
  Bits& bits_;
  std::uint64_t word_ = 0;
  int left_ = 0;
};

template <int kBits, class Bits>
std::uint64_t masked_draw(Words<kBits, Bits>& words, std::uint64_t range) {
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(range);
  std::uint64_t value = words.next() & mask;
  while (value > range) value = words.next() & mask;
  return value;
}

template <int kBits, class Bits>
std::uint64_t lemire_draw(Words<kBits, Bits>& words, std::uint64_t range) {
  using Product = std::conditional_t<kBits == 64, uint128, std::uint64_t>;
  constexpr std::uint64_t kMax = Words<kBits, Bits>::kMax;
  const std::uint64_t size = range + 1;
  Product product = Product{words.next()} * size;
  if ((static_cast<std::uint64_t>(product) & kMax) < size) {
    const std::uint64_t biased = (kMax - range) % size;
    while ((static_cast<std::uint64_t>(product) & kMax) < biased)
      product = Product{words.next()} * size;
  }
  return static_cast<std::uint64_t>(product >> kBits);
}

/// A number from [0, range]; for range 0 no bits are used.
template <Rejection kRejection, int kBits, class Bits>
std::uint64_t draw_from(Words<kBits, Bits>& words, std::uint64_t range) {
  if (range == 0) return 0;
  if (range == Words<kBits, Bits>::kMax) return words.next();
  if constexpr (kRejection == Rejection::masked)
    return masked_draw(words, range);
  else
    return lemire_draw(words, range);
}

/// One integer from [0, range], from a 32-bit word if the range fits.
template <Rejection kRejection, class Bits>
std::uint64_t bounded_draw(Bits& bits, std::uint64_t range) {
  if (range <= 0xFFFFFFFFu) {
    Words<32, Bits> words(bits);
    return draw_from<kRejection>(words, range);
  }
  Words<64, Bits> words(bits);
  return draw_from<kRejection>(words, range);
}

template <Rejection kRejection, int kBits, class T, class Bits>
void fill_bounded(Bits& bits, int128 low, std::uint64_t range, std::span<T> values) {
  Words<kBits, Bits> words(bits);
  const auto offset = static_cast<std::uint64_t>(low);  // modulo 2^64, if negative
  for (T& value : values) value = static_cast<T>(offset + draw_from<kRejection>(words, range));
}

/// Integers from [low, high). As in NumPy, bounds are not checked and no bits used if the shape is
/// empty.
template <Rejection kRejection, class Bits>
Tensor bounded_integers(Bits& bits, int128 low, int128 high, DType dtype, const Shape& shape) {
  Tensor result(dtype, shape);
  if (result.size() == 0) return result;
  const std::uint64_t range = checked_range(low, high, dtype);
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      constexpr int kBits = std::is_same_v<T, bool> ? 1 : 8 * static_cast<int>(sizeof(T));
      const std::span<T> values = result.mutable_data<T>();
      if (kBits == 64 && range <= 0xFFFFFFFFu)
        fill_bounded<kRejection, 32>(bits, low, range, values);
      else
        fill_bounded<kRejection, kBits>(bits, low, range, values);
    }
  });
  return result;
}

/// low + (high - low) * u, where u = bits.next_double() is in [0, 1); exactly u for low = 0 and
/// high = 1. Throws Error (data) if high - low is not finite.
template <class Bits>
Tensor uniform_doubles(Bits& bits, double low, double high, const Shape& shape) {
  const double width = high - low;
  if (!std::isfinite(width))
    fail_data("bounds: expected high - low to be finite, found [" + decimal(low) + ", " +
              decimal(high) + ")");
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = low + width * bits.next_double();
  return result;
}

class RandomState {
 public:
  explicit RandomState(std::uint32_t seed);                     ///< np.random.seed(42)
  explicit RandomState(const std::vector<std::uint32_t>& key);  ///< seed([42, 7]); not empty

  /// randint(low, high, shape, dtype): integers from [low, high). dtype: i8-i64, u8-u64, bool; the
  /// stream depends on its width. Throws Error (data) if low >= high or if dtype cannot represent
  /// the bounds, unless the shape has no elements.
  Tensor randint(int128 low, int128 high, DType dtype, const Shape& shape);

  Tensor random_sample(const Shape& shape);  ///< [0, 1), f64; rand is the same stream

  /// low + (high - low) * random_sample. Throws Error (data) if high - low is not finite.
  Tensor uniform(double low, double high, const Shape& shape);

  /// Marsaglia's polar method: g1 = f x2, g2 = f x1 with f = sqrt(-2 log(r) / r), r = x1^2 + x2^2,
  /// for x1, x2 uniform in the unit disc. randn is the same stream.
  Tensor standard_normal(const Shape& shape);

  /// loc + scale * standard_normal. Throws Error (data) if scale is negative or -0.
  Tensor normal(double loc, double scale, const Shape& shape);

  /// Fisher-Yates shuffle along the first axis, from the end. Throws Error (data) for a 0-D tensor.
  void shuffle(Tensor& tensor);
  Tensor permutation(std::int64_t n);  ///< a shuffled arange(n), int64; empty if n < 0

  /// choice(n, shape, replace, p): int64 from [0, n). `p`: n probabilities; equal if absent.
  /// With p, indices are found by inverting the cumulative sums; without replacement, rounds draw
  /// as many as are missing and keep the first of each value. Throws Error (data) if n is 0, if
  /// more are drawn without replacement than there are (with p > 0), or if p is negative, NaN or
  /// does not sum to 1 within sqrt(epsilon).
  Tensor choice(std::int64_t n, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p);
  /// The elements of a 1-D population at those indices. Also throws Error (data) if it is not 1-D.
  Tensor choice(const Tensor& population, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p);

 private:
  double next_gauss();

  Mt19937 bits_;
  std::optional<double> gauss_;  ///< the second of a pair of normals
};

}  // namespace attn
