// numpy.random.default_rng: PCG64 seeded through NumPy's SeedSequence. random(), integers() and
// uniform() produce the same bits as NumPy 1.24.
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
  /// default_rng(seed), where `words` are the 32-bit words of a non-negative integer, least
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

 private:
  Pcg64 bits_;
};

/// The 32-bit words of a decimal integer, least significant first, at least one. std::nullopt if
/// `digits` contains anything but digits or is longer than kMostSeedDigits (the conversion takes
/// quadratic time).
inline constexpr std::size_t kMostSeedDigits = 10000;
std::optional<std::vector<std::uint32_t>> entropy_words(std::string_view digits);

}  // namespace attn
