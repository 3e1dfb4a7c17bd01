// numpy.random.default_rng: PCG64 (O'Neill 2014, HMC-CS-2014-0905; XSL-RR 128/64) seeded through
// NumPy's SeedSequence. random(), integers() and uniform() are bit for bit those of NumPy 1.17-2.x.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/random/int128.h"
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
  Tensor uniform(double low, double high, const Shape& shape);
  /// Generator.integers(low, high, size, dtype): integers from [low, high); pass high + 1 for
  /// endpoint=True. dtype: i8-i64, u8-u64, bool. Lemire's method (arXiv:1805.10941), masked
  /// rejection where NumPy uses it. Errors: data, for low >= high or bounds that dtype cannot hold.
  Tensor integers(int128 low, int128 high, DType dtype, const Shape& shape);

  std::uint64_t next64();
  std::uint32_t next32();  ///< the low half of a word, then its high half

 private:
  uint128 state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> half_;
};

}  // namespace attn
