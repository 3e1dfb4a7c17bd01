// jax.random with its default generator, Threefry-2x32: Salmon, Moraes, Dror and Shaw, "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC11 (2011). There is no stream: a key and a shape determine
// all numbers. JAX has two ways to count elements, jax_threefry_partitionable (the default since
// JAX 0.5) and the original one.
//
// Numbers are equal bit for bit to those of JAX 0.10 on an x86-64 CPU with AVX2 and FMA; normal()
// computes the inverse error function as XLA does there: Giles, "Approximating the erfinv
// function", GPU Computing Gems 2 (2011).
#pragma once

#include <cstdint>
#include <string>

#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct ThreefryKey {
  std::uint32_t high = 0, low = 0;
};

class JaxRandom {
 public:
  /// jax.random.key(seed), which has 32 bits unless 64-bit types are enabled.
  JaxRandom(std::uint32_t seed, bool partitionable)
      : root_{0, seed}, partitionable_(partitionable) {}

  /// The key that is derived from the seed's key by steps, separated by spaces: "split[1]" is
  /// jax.random.split(key)[1], "split(3)[0]" split(key, 3)[0], and "fold_in(7)" fold_in(key, 7).
  /// Errors: data.
  ThreefryKey key(const std::string& steps) const;

  /// minval + (maxval - minval) * u, at least minval. dtype: f32, f64. Throws Error (data) unless
  /// maxval - minval is positive and finite.
  Tensor uniform(ThreefryKey key, double minval, double maxval, DType dtype,
                 const Shape& shape) const;

  /// sqrt(2) erfinv(u), u in (-1, 1); float32.
  Tensor normal(ThreefryKey key, const Shape& shape) const;

  /// Integers from [minval, maxval). dtype: i8-i64, u8-u64. Errors: data, if minval >= maxval or
  /// dtype cannot represent the bounds.
  Tensor randint(ThreefryKey key, int128 minval, int128 maxval, DType dtype,
                 const Shape& shape) const;

  /// uniform() < p, bool.
  Tensor bernoulli(ThreefryKey key, double p, const Shape& shape) const;

 private:
  ThreefryKey split(ThreefryKey key, std::uint32_t count, std::uint32_t index) const;
  template <class Word>
  Word bits(ThreefryKey key, std::size_t size, std::size_t index) const;

  ThreefryKey root_;
  bool partitionable_;
};

}  // namespace attn
