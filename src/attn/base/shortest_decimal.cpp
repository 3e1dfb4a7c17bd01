// Raffaello Giulietti, "The Schubfach way to render doubles", 2021; the names are those of the
// paper.
//
// The numbers that read back as v = c 2^q lie between its left and right boundary, halfway to its
// neighbours. They are compared in units of 10^k / 4, where 10^k is at most the width of this
// interval. In these units, v and its boundaries are products with 10^-k. The paper shows that 126
// bits of 10^-k are enough, if the products are rounded to odd: a number that is not whole becomes
// the odd one of its two neighbours, which leaves its order with even numbers unchanged.
#include "attn/base/shortest_decimal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace attn {
namespace {

__extension__ typedef unsigned __int128 Wide;

// Whole parts of logarithms, exact for all exponents of doubles.
constexpr int floor_log10_pow2(int e) { return (e * 1262611) >> 22; }
constexpr int floor_log10_three_quarters_pow2(int e) { return (e * 1262611 - 524031) >> 22; }
constexpr int floor_log2_pow10(int e) { return (e * 1741647) >> 19; }

/// A large number, for exact powers of 5.
class Large {
 public:
  constexpr explicit Large(std::size_t bit) { words_[bit / 32] = std::uint32_t{1} << bit % 32; }

  constexpr void multiply_by_5() {
    std::uint64_t carry = 0;
    for (std::uint32_t& word : words_) {
      carry += std::uint64_t{word} * 5;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }

  constexpr void divide_by_5() {
    std::uint64_t rest = 0;
    for (std::size_t i = words_.size(); i-- > 0;) {
      rest = rest << 32 | words_[i];
      words_[i] = static_cast<std::uint32_t>(rest / 5);
      rest %= 5;
    }
  }

  /// Its first 128 bits. It has at least 160.
  constexpr Wide leading_bits() const {
    std::size_t first = words_.size() - 1;
    while (words_[first] == 0) --first;
    Wide bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits = bits << 32 | words_[first - i];
    const int missing = std::countl_zero(words_[first]);
    return bits << missing | std::uint64_t{words_[first - 4]} >> (32 - missing);
  }

 private:
  std::array<std::uint32_t, 29> words_{};  // least significant first
};

constexpr int kLeast = -292, kMost = 324;  // powers of 10 that doubles need

/// The first 128 bits of each power of 10, rounded up. They are those of the power of 5.
constexpr auto kPowers = [] {
  std::array<Wide, kMost - kLeast + 1> powers{};
  Large power(160);
  for (int k = 0; k <= kMost; ++k, power.multiply_by_5())
    powers[static_cast<std::size_t>(k - kLeast)] = power.leading_bits() + 1;
  power = Large(28 * 32);
  for (int k = -1; k >= kLeast; --k) {
    power.divide_by_5();
    powers[static_cast<std::size_t>(k - kLeast)] = power.leading_bits() + 1;
  }
  return powers;
}();

/// x g / 2^128, rounded to odd.
std::uint64_t product(std::uint64_t x, Wide g) {
  const auto low = static_cast<std::uint64_t>(g), high = static_cast<std::uint64_t>(g >> 64);
  const Wide result = Wide{x} * high + (Wide{x} * low >> 64);
  // g is slightly too large: a whole result has a fraction of at most 2^-64.
  const bool is_whole = static_cast<std::uint64_t>(result) <= 1;
  return static_cast<std::uint64_t>(result >> 64) | (is_whole ? 0 : 1);
}

}  // namespace

ShortDecimal shortest_decimal(double value) {
  constexpr int kFractionBits = 52, kBias = 1075;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t fraction = bits % (std::uint64_t{1} << kFractionBits);
  const int exponent = static_cast<int>(bits >> kFractionBits);
  const std::uint64_t c = exponent == 0 ? fraction : fraction | std::uint64_t{1} << kFractionBits;
  const int q = std::max(exponent, 1) - kBias;

  // The neighbour below a power of two is half as far away as the one above it.
  const bool is_power = fraction == 0 && exponent > 1;
  const int k = is_power ? floor_log10_three_quarters_pow2(q) : floor_log10_pow2(q);
  const int h = q + floor_log2_pow10(-k) + 1;
  const Wide g = kPowers[static_cast<std::size_t>(-k - kLeast)];
  const std::uint64_t v = product(4 * c << h, g);
  // A boundary reads back as v only if c is even.
  const std::uint64_t left = product((4 * c - (is_power ? 1 : 2)) << h, g) + c % 2;
  const std::uint64_t right = product((4 * c + 2) << h, g) - c % 2;

  // At most one multiple of 10^(k + 1) reads back as v, but at least one of 10^k.
  const std::uint64_t tens = v / 40, ones = v / 4;
  const bool has_tens_below = left <= 40 * tens, has_tens_above = 40 * tens + 40 <= right;
  if (has_tens_below != has_tens_above) return {tens + has_tens_above, k + 1};
  const bool has_below = left <= 4 * ones, has_above = 4 * ones + 4 <= right;
  if (has_below != has_above) return {ones + has_above, k};
  const std::uint64_t middle = 4 * ones + 2;
  return {ones + (v > middle || (v == middle && ones % 2 == 1)), k};
}

}  // namespace attn
