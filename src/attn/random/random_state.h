// numpy.random.RandomState, which np.random.seed(), np.random.rand() etc. use, bit for bit.
// MT19937 with the legacy distributions, which NumPy guarantees not to change (NEP 19). A sequence
// of calls gives the same numbers as in NumPy, including state that a call keeps for the next one
// (the second normal of a pair).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/random/int128.h"
#include "attn/random/mt19937.h"
#include "attn/tensor/tensor.h"

namespace attn {

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
  Tensor permutation(std::int64_t n);        ///< a shuffled arange(n), int64; empty if n < 0
  Tensor permutation(const Tensor& tensor);  ///< a copy with shuffled rows

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
  Tensor weighted_choice(const Shape& shape, bool replace, std::vector<double> p);

  Mt19937 bits_;
  std::optional<double> gauss_;  ///< the second of a pair of normals
};

}  // namespace attn
