// numpy.random.RandomState, bit for bit: what np.random.seed(...) and np.random.rand(...) etc.
// give.
//
// MT19937 and the legacy distributions, which NumPy promises never to change (its "compatibility
// policy" for random; NEP 19). A run of calls gives the same numbers as the same calls in NumPy,
// including what a call leaves behind for the next one (the second normal of a pair).
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

  /// randint(low, high, shape, dtype): integers from [low, high). dtype: i8-i64, u8-u64, bool; each
  /// width has a stream of its own. Errors: data, for low >= high or bounds that dtype cannot hold;
  /// a shape without elements is not checked.
  Tensor randint(int128 low, int128 high, DType dtype, const Shape& shape);

  Tensor random_sample(const Shape& shape);  ///< [0, 1), f64; rand is the same stream

  /// low + (high - low) * random_sample. Errors: data, when high - low is not finite.
  Tensor uniform(double low, double high, const Shape& shape);

  /// Marsaglia's polar method: g1 = f x2, g2 = f x1 with f = sqrt(-2 log(r) / r), r = x1^2 + x2^2,
  /// for x1, x2 uniform in the unit disc. randn is the same stream.
  Tensor standard_normal(const Shape& shape);

  /// loc + scale * standard_normal. Errors: data, when scale is negative (or -0).
  Tensor normal(double loc, double scale, const Shape& shape);

  /// Fisher-Yates along the first axis, from the end. Errors: data, for a lone number.
  void shuffle(Tensor& tensor);
  Tensor permutation(std::int64_t n);        ///< a shuffled arange(n), int64; n < 0 is as 0
  Tensor permutation(const Tensor& tensor);  ///< rows shuffled, in a copy

  /// choice(n, shape, replace, p): int64 from [0, n). `p`: n probabilities; none: equal
  /// ones. With p: inversion of the cumulative sums; without replacement in rounds, each drawing as
  /// many as are missing and keeping the first of each value. Errors: data, for nothing to choose
  /// from, more without replacement than there are (with p > 0), and p that is negative, NaN or
  /// does not sum to 1 within sqrt(epsilon).
  Tensor choice(std::int64_t n, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p);
  /// The elements of a 1-D population at those indices. Errors: also data, when it is not 1-D.
  Tensor choice(const Tensor& population, const Shape& shape, bool replace,
                const std::optional<std::vector<double>>& p);

 private:
  double next_gauss();
  Tensor weighted_choice(const Shape& shape, bool replace, std::vector<double> p);

  Mt19937 bits_;
  std::optional<double> gauss_;  ///< the second of a pair of normals
};

}  // namespace attn
