// Generators of random bits.
//
// The Mersenne Twister MT19937: Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally
// equidistributed uniform pseudo-random number generator", ACM TOMACS 8:1 (1998), seeded as in
// their revision of 2002.
//
// PCG64 XSL-RR 128/64: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", HMC-CS-2014-0905 (2014).
// Seeded like NumPy's with a SeedSequence: the entropy is hashed into a pool of four 32-bit words
// (O'Neill, "Developing a seed_seq Alternative", 2015), from which 128 bits of state and 128 bits
// of stream are generated.
//
// numpy.random.default_rng: PCG64 seeded through NumPy's SeedSequence. All methods produce the same
// bits as NumPy 1.24 and 2.4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

std::string decimal(int128 value);
std::string decimal(double value);  ///< the shortest text that parses as the same value

class Mt19937 {
 public:
  explicit Mt19937(std::uint32_t seed);
  explicit Mt19937(std::span<const std::uint32_t> key);  ///< throws Error (data) if empty

  std::uint32_t next32();
  std::uint64_t next64();  ///< two words, the high one first
  double next_double();    ///< [0, 1), 53 bits: two words

 private:
  static constexpr std::size_t kWords = 624, kMiddle = 397;

  void seed_to(std::size_t count);

  std::array<std::uint32_t, kWords> state_{};
  std::size_t seeded_ = 1;    ///< words of the state that have been set; others are when needed
  std::size_t position_ = 0;  ///< the next word to update and return
};

class Pcg64 {
 public:
  /// `entropy`: 32-bit words, least significant first; empty means 0.
  explicit Pcg64(std::span<const std::uint32_t> entropy);

  std::uint32_t next32();  ///< the low half of a 64-bit word; the next call returns its high half
  std::uint64_t next64();  ///< a new 64-bit word; does not affect a stored half
  double next_double();    ///< [0, 1), 53 bits of a 64-bit word
  float next_float();      ///< [0, 1), 24 bits of a 32-bit word

 private:
  void step();

  uint128 state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> half_;
};

class Generator {
 public:
  /// default_rng(seed), where `entropy` is the seed, a non-negative integer, as 32-bit words, least
  /// significant first. For default_rng([a, b]) pass the words of a followed by those of b.
  explicit Generator(const std::vector<std::uint32_t>& entropy);
  explicit Generator(std::uint64_t seed);

  Tensor random(const Shape& shape);  ///< [0, 1), f64
  Tensor random_f32(const Shape& shape);

  /// low + (high - low) * random. Throws Error (data) if high - low is negative or not finite.
  Tensor uniform(double low, double high, const Shape& shape);

  /// integers(low, high, shape, dtype): integers from [low, high); pass high + 1 for endpoint=True.
  /// dtype: i8-i64, u8-u64, bool. Throws Error (data) if low >= high or if dtype cannot represent
  /// the bounds, unless the shape has no elements.
  Tensor integers(int128 low, int128 high, DType dtype, const Shape& shape);

  Tensor standard_normal(const Shape& shape);  ///< f64
  Tensor standard_normal_f32(const Shape& shape);

  /// loc + scale * standard_normal. Throws Error (data) if scale is negative or -0.
  Tensor normal(double loc, double scale, const Shape& shape);

  // As those of RandomState (random_state.h), from other bits.
  void shuffle(Tensor& tensor);
  Tensor permutation(std::int64_t n);

  /// Also as in RandomState, except that equally probable elements without replacement are found by
  /// Floyd's method (Bentley and Floyd, CACM 30:9, 1987) and then shuffled if `shuffled`, or, if
  /// they are many, by shuffling the end of arange(n); these shuffles use Lemire's method.
  Tensor choice(std::int64_t n, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p, bool shuffled);
  Tensor choice(const Tensor& population, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p, bool shuffled);

 private:
  Tensor distinct(std::int64_t n, const Shape& shape, bool shuffled);

  Pcg64 bits_;
};

/// The 32-bit words of a decimal integer, least significant first, at least one. std::nullopt if
/// `digits` contains anything but digits or is longer than kMaxSeedDigits (the conversion takes
/// quadratic time).
inline constexpr std::size_t kMaxSeedDigits = 10000;
std::optional<std::vector<std::uint32_t>> entropy_words(std::string_view digits);

}  // namespace attn
