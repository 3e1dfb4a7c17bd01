// numpy.random.default_rng: PCG64 seeded through NumPy's SeedSequence. random(), integers() and
// uniform() are bit for bit those of NumPy 1.24.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/random/int128.h"
#include "attn/random/pcg64.h"
#include "attn/tensor/tensor.h"

namespace attn {

class Generator {
 public:
  /// default_rng(seed): a non-negative integer of any size, as 32-bit words, least significant
  /// first. default_rng([a, b]) is the words of a, then those of b.
  explicit Generator(const std::vector<std::uint32_t>& entropy);
  explicit Generator(std::uint64_t seed);

  Tensor random(const Shape& shape);  ///< [0, 1), f64
  Tensor random_f32(const Shape& shape);

  /// low + (high - low) * random. Errors: data, when high - low is negative or not finite.
  Tensor uniform(double low, double high, const Shape& shape);

  /// integers(low, high, shape, dtype): integers from [low, high); pass high + 1 for
  /// endpoint=True. dtype: i8-i64, u8-u64, bool. Errors: data, for low >= high or bounds that dtype
  /// cannot hold; a shape without elements is not checked.
  Tensor integers(int128 low, int128 high, DType dtype, const Shape& shape);

 private:
  Pcg64 bits_;
};

/// The 32-bit words of a decimal integer, least significant first, at least one; nothing when
/// `digits` is not made of digits alone, or is more than kMostSeedDigits (the time goes with the
/// square of their number).
inline constexpr std::size_t kMostSeedDigits = 10000;
std::optional<std::vector<std::uint32_t>> entropy_words(std::string_view digits);

}  // namespace attn
