// The module random of CPython: MT19937, seeded with an integer by random.seed(), and the methods
// of Lib/random.py. They give the same bits as CPython 3.11 to 3.14 with the same C library, whose
// log, cos and sin gauss() and normalvariate() call. A sequence of calls gives the same numbers as
// in Python, including the second number of a pair of gauss().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The functions draw as many numbers as `shape` has elements, in row-major order, with one call in
/// Python for each. Floats are f64, integers int64.
class PythonRandom {
 public:
  /// random.seed(n): the 32-bit words of n, least significant first, at least one.
  explicit PythonRandom(const std::vector<std::uint32_t>& words) : bits_(words) {}

  Tensor random(const Shape& shape);                       ///< [0, 1), 53 bits
  Tensor uniform(double a, double b, const Shape& shape);  ///< a + (b - a) * random()
  /// mu + sigma z, where pairs z = r cos(x), r sin(x) come from x = 2 pi random(),
  /// r = sqrt(-2 log(1 - random())): Box and Muller, Ann. Math. Stat. 29:2 (1958).
  Tensor gauss(double mu, double sigma, const Shape& shape);
  /// The ratio of uniforms: Kinderman and Monahan, ACM TOMS 3:3 (1977).
  Tensor normalvariate(double mu, double sigma, const Shape& shape);

  /// Integers from [start, stop). Errors: data, if there are none, or if int64 lacks one.
  Tensor randrange(int128 start, int128 stop, const Shape& shape);
  /// Errors: data, unless 0 <= k <= 63.
  Tensor getrandbits(std::int64_t k, const Shape& shape);

  /// Indices from [0, n), each of its own call of choice(). Errors: data, if n is 0.
  Tensor choice(std::int64_t n, const Shape& shape);
  /// Indices as of choices(). Errors: data, unless there are n weights, none of them negative,
  /// with a finite sum above 0.
  Tensor choices(std::int64_t n, const std::optional<std::vector<double>>& weights,
                 const Shape& shape);
  /// k different indices from [0, n), as of sample(). Errors: data, unless 0 <= k <= n.
  Tensor sample(std::int64_t n, std::int64_t k);
  /// The order of arange(n) after shuffle(): Fisher and Yates, from the end.
  Tensor shuffled(std::int64_t n);

 private:
  std::uint64_t below(std::uint64_t n);  ///< from [0, n); n > 0
  std::uint64_t bits(int k);             ///< k of them, 0 <= k <= 64
  double next_gauss();
  double next_normal();

  Mt19937 bits_;
  std::optional<double> gauss_;  ///< the second of a pair
};

}  // namespace attn
