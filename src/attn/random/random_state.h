// numpy.random.RandomState, bit for bit: what np.random.seed(...) and np.random.rand(...) etc.
// give.
//
// MT19937 (Matsumoto and Nishimura 1998, ACM TOMACS 8:1) and the legacy distributions, which NumPy
// promises never to change (numpy.random "compatibility policy"; NEP 19). A run of calls gives the
// same numbers as the same calls in NumPy, including what a call leaves behind for the next one
// (the second normal of a pair, unused halves of a word).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "attn/random/int128.h"
#include "attn/tensor/tensor.h"

namespace attn {

class RandomState {
 public:
  explicit RandomState(std::uint32_t seed);  ///< np.random.seed(42)
  explicit RandomState(
      const std::vector<std::uint32_t>& key);  ///< np.random.seed([42, 7]); not empty

  /// RandomState.randint(low, high, size, dtype): integers from [low, high). dtype: i8-i64, u8-u64,
  /// bool; each width has a stream of its own. Errors: data, for low >= high or bounds that dtype
  /// cannot hold.
  Tensor randint(int128 low, int128 high, DType dtype, const Shape& shape);

  Tensor random_sample(const Shape& shape);  ///< [0, 1), f64; rand is the same stream
  Tensor uniform(double low, double high, const Shape& shape);
  Tensor standard_normal(const Shape& shape);  ///< randn is the same stream
  Tensor normal(double loc, double scale, const Shape& shape);
  Tensor permutation(std::int64_t n);        ///< a shuffled arange(n), int64
  Tensor permutation(const Tensor& tensor);  ///< rows shuffled, in a copy
  void shuffle(Tensor& tensor);              ///< along the first axis
  /// np.random.choice(population, shape, replace, p); `population` is 1-D; `p` empty for uniform.
  Tensor choice(const Tensor& population, const Shape& shape, bool replace,
                const std::vector<double>& p);

  std::uint32_t next32();
  std::uint64_t next64();  ///< the high word first
  double next_double();    ///< 53 bits

 private:
  void twist();
  double next_gauss();
  std::uint64_t interval(std::uint64_t max);

  std::array<std::uint32_t, 624> state_{};
  int position_ = 624;
  std::optional<double> gauss_;
};

}  // namespace attn
