// The stream of torch's CPU generator, torch.manual_seed(seed), as PyTorch 2.13 draws from it on a
// machine with AVX2: an MT19937 that is seeded like numpy.random.RandomState. A sequence of calls
// gives the same numbers as in PyTorch, including the second normal of a pair, which a call keeps
// for the next one.
//
// Bits. A uniform float32 takes 24 low bits of a word; a uniform float64 takes 53 low bits of two.
// normal() draws fewer than 16 elements one by one in float64 (Box and Muller, Annals of
// Mathematical Statistics 29:2, 1958), and 16 or more in blocks. A block of 16 uniform numbers
// gives 8 pairs, (j, j + 8); if the size is no multiple of 16, the last 16 numbers are drawn again.
//
// Rounding. PyTorch contracts a * b + c to one operation; so does this code where it matters. In
// float32, blocks use the polynomials for log, sin and cos of the Cephes library (S. L. Moshier,
// "Methods and Programs for Mathematical Functions", 1989), in the order of operations of PyTorch's
// AVX2 code: results are equal bit for bit. On other machines PyTorch calls logf, sinf and cosf,
// and numbers differ by up to 2e-6.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "attn/random/generator.h"
#include "attn/tensor/tensor.h"

namespace attn {

class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint32_t seed);  ///< torch.manual_seed(seed): only 32 bits matter

  // In all methods, the dtype of floats is f32 or f64; they throw Error (data) for any other.

  /// low + (high - low) * u, for u in [0, 1). torch.rand is uniform(0, 1). Throws Error (data) if
  /// low > high or if high - low is not finite.
  Tensor uniform(double low, double high, DType dtype, const Shape& shape);

  /// mean + std * g. torch.randn is normal(0, 1). Throws Error (data) if std is negative or NaN.
  Tensor normal(double mean, double std, DType dtype, const Shape& shape);

  /// torch.randint: a 32-bit word modulo high - low, or a 64-bit word if high - low >= 2^28.
  /// dtype: i8-i64, u8-u64, bool, f32, f64. Throws Error (data) if low >= high, if a bound is
  /// outside int64 or if dtype cannot represent all results, unless the shape has no elements.
  Tensor randint(int128 low, int128 high, DType dtype, const Shape& shape);

  /// torch.randperm: 0 to n - 1 in random order, int64. Throws Error (data) if
  /// n >= kLongPermutation, for which PyTorch uses another method.
  static constexpr std::int64_t kLongPermutation = 214748364;
  Tensor randperm(std::int64_t n);

  /// Tensor.bernoulli_(p): 1 with probability p, otherwise 0; 53 bits for each element. PyTorch
  /// with MKL on an Intel CPU uses another stream for this. Throws Error (data) unless 0 <= p <= 1.
  Tensor bernoulli(double p, DType dtype, const Shape& shape);
  /// torch.bernoulli(p): one probability for each element, compared with a uniform number of p's
  /// dtype, f32 or f64, which is the result's, too. The same on all machines.
  Tensor bernoulli(const Tensor& p);

 private:
  template <class T>
  T next_uniform();
  double next_gauss();
  template <class T>
  void fill_normal(double mean, double std, std::span<T> values);

  Mt19937 bits_;
  std::optional<double> gauss_;  ///< the second of a pair of normals
};

/// torch.nn.init.kaiming_uniform_ and kaiming_normal_: `a` is the slope of leaky_relu.
struct Kaiming {
  double a = 0;
  bool fan_out = false;
  std::string nonlinearity = "leaky_relu";
};

// The initialisers of torch.nn.init for weights of shape (out, in, ...). They throw Error (data)
// for fewer than two axes, and for an unknown nonlinearity.
Tensor kaiming_uniform(TorchGenerator& generator, const Kaiming& options, DType dtype,
                       const Shape& shape);
Tensor kaiming_normal(TorchGenerator& generator, const Kaiming& options, DType dtype,
                      const Shape& shape);
Tensor xavier_uniform(TorchGenerator& generator, double gain, DType dtype, const Shape& shape);
Tensor xavier_normal(TorchGenerator& generator, double gain, DType dtype, const Shape& shape);

// The parameters of new layers, under their names in PyTorch.

/// torch.nn.Linear: weight (out, in), and bias (out) if `has_bias`.
TensorMap linear_layer(TorchGenerator& generator, std::size_t in, std::size_t out, bool has_bias,
                       DType dtype);

struct AttentionWidths {
  std::size_t embed = 0, key = 0, value = 0;
};

/// torch.nn.MultiheadAttention: in_proj_weight (3E, E), or q_proj_weight, k_proj_weight and
/// v_proj_weight if the widths differ; out_proj.weight (E, E); if `has_bias`, in_proj_bias (3E) and
/// out_proj.bias (E), which are zeros. PyTorch draws out_proj first, with a bias that is discarded.
TensorMap attention_layer(TorchGenerator& generator, const AttentionWidths& widths, bool has_bias,
                          DType dtype);

}  // namespace attn
