#include "attn/random/torch_generator.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/random/cephes_log.h"
#include "attn/random/random_state.h"

namespace attn {
namespace {

void check_dtype(DType dtype, bool allowed, const char* expected) {
  if (!allowed)
    fail_data({.subject = "dtype", .expected = expected, .found = std::string(name_of(dtype))});
}

bool is_float_or_double(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

void check_number_dtype(DType dtype) {
  check_dtype(dtype, !is_float(dtype) || is_float_or_double(dtype),
              "an integer type, bool, float32 or float64");
}

/// Calls fill(values) with the elements of a new tensor as a span of floats or doubles.
template <class Fill>
Tensor filled_floats(DType dtype, const Shape& shape, const Fill& fill) {
  check_dtype(dtype, is_float_or_double(dtype), "float32 or float64");
  Tensor result(dtype, shape);
  if (dtype == DType::f32)
    fill(result.mutable_data<float>());
  else
    fill(result.mutable_data<double>());
  return result;
}

struct SinCos {
  float sin, cos;
};

/// The natural logarithm of x in (0, 1]: of the fraction in [sqrt(1/2), sqrt(2)) by a polynomial,
/// plus the exponent times log(2) in two parts.
float vector_log(float x) {
  constexpr std::array<float, 9> kTerms = kCephesLogTerms;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  float exponent = static_cast<float>(static_cast<int>(bits >> 23) - 126);
  float fraction = std::bit_cast<float>((bits & 0x007FFFFFu) | 0x3F000000u);  // [0.5, 1)
  if (fraction < kCephesSqrtHalf) {
    exponent -= 1;
    fraction = (fraction - 1) + fraction;
  } else {
    fraction -= 1;
  }
  const float square = fraction * fraction;
  float sum = kTerms[0];
  for (std::size_t i = 1; i < kTerms.size(); ++i) sum = std::fma(sum, fraction, kTerms[i]);
  sum = std::fma(sum * fraction, square, exponent * kCephesLog2Low);
  sum = std::fma(-0.5f, square, sum);
  return std::fma(exponent, kCephesLog2High, fraction + sum);
}

/// The sine and cosine of x in [0, 2 pi]: x is reduced by an even multiple of pi/4, which is
/// subtracted in three parts.
SinCos vector_sincos(float x) {
  constexpr float kFourOverPi = 1.27323954473516f;
  const int octant = (static_cast<int>(x * kFourOverPi) + 1) & ~1;
  const auto multiple = static_cast<float>(octant);
  x = std::fma(multiple, -0.78515625f, x);
  x = std::fma(multiple, -2.4187564849853515625e-4f, x);
  x = std::fma(multiple, -3.77489497744594108e-8f, x);
  const float square = x * x;
  float cosine = std::fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
  cosine = std::fma(cosine, square, 4.166664568298827e-2f) * square;
  cosine = std::fma(cosine, square, -0.5f * square) + 1;
  float sine = std::fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
  sine = std::fma(sine, square, -1.6666654611e-1f) * square;
  sine = std::fma(sine, x, x);
  if ((octant & 2) != 0) std::swap(sine, cosine);
  return {(octant & 4) != 0 ? -sine : sine, ((octant - 2) & 4) == 0 ? -cosine : cosine};
}

/// Replaces 16 uniform numbers by 16 normal ones.
void box_muller(std::span<float, 16> block, float mean, float std) {
  constexpr float kTwoPi = 2 * std::numbers::pi_v<float>;
  for (std::size_t j = 0; j < 8; ++j) {
    const float radius = std::sqrt(-2 * vector_log(1 - block[j]));
    const SinCos angle = vector_sincos(kTwoPi * block[j + 8]);
    block[j] = std::fma(radius * angle.cos, std, mean);
    block[j + 8] = std::fma(radius * angle.sin, std, mean);
  }
}

void box_muller(std::span<double, 16> block, double mean, double std) {
  for (std::size_t j = 0; j < 8; ++j) {
    const double radius = std::sqrt(-2 * std::log(1 - block[j]));
    const double angle = 2 * std::numbers::pi * block[j + 8];
    block[j] = std::fma(radius * std::cos(angle), std, mean);
    block[j + 8] = std::fma(radius * std::sin(angle), std, mean);
  }
}

/// Throws Error (data) unless dtype represents all integers of [low, high), which are within int64.
void check_integers(int128 low, int128 high, DType dtype) {
  checked_range(low, high, is_float(dtype) ? DType::i64 : dtype);
  const int128 largest = dtype == DType::f32   ? int128{1} << std::numeric_limits<float>::digits
                         : dtype == DType::f64 ? int128{1} << std::numeric_limits<double>::digits
                                               : std::numeric_limits<std::int64_t>::max();
  if (low < (is_float(dtype) ? -largest : -largest - 1) || high - 1 > largest)
    fail_data("bounds: expected integers from " + decimal(-largest) + " to " + decimal(largest) +
              ", found [" + decimal(low) + ", " + decimal(high) + ")");
}

}  // namespace

TorchGenerator::TorchGenerator(std::uint32_t seed) : bits_(seed) {}

/// In [0, 1).
template <class T>
T TorchGenerator::next_uniform() {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kDigits) - 1;
  const std::uint64_t word = sizeof(T) == 8 ? bits_.next64() : bits_.next32();
  return static_cast<T>(word & kMask) / static_cast<T>(kMask + 1);
}

Tensor TorchGenerator::uniform(double low, double high, DType dtype, const Shape& shape) {
  return filled_floats(dtype, shape, [&]<class T>(std::span<T> values) {
    const T from = static_cast<T>(low), to = static_cast<T>(high);
    if (!(from <= to) || !std::isfinite(to - from))
      fail_data("bounds: expected low <= high and a finite difference, found [" + decimal(low) +
                ", " + decimal(high) + ")");
    for (T& value : values) {
      value = std::fma(next_uniform<T>(), to - from, from);
      if (value == to) value = from;  // rounded up
    }
  });
}

double TorchGenerator::next_gauss() {
  if (gauss_) return *std::exchange(gauss_, std::nullopt);
  const double angle = 2 * std::numbers::pi * next_uniform<double>();
  const double radius = std::sqrt(-2 * std::log1p(-next_uniform<double>()));
  gauss_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

template <class T>
void TorchGenerator::fill_normal(double mean, double std, std::span<T> values) {
  constexpr std::size_t kBlock = 16;
  if (values.size() < kBlock) {
    for (T& value : values) value = static_cast<T>(std::fma(next_gauss(), std, mean));
    return;
  }
  const auto transform = [&](std::span<T> rest) {
    box_muller(rest.template first<kBlock>(), static_cast<T>(mean), static_cast<T>(std));
  };
  for (T& value : values) value = next_uniform<T>();
  for (std::size_t i = 0; i + kBlock <= values.size(); i += kBlock) transform(values.subspan(i));
  if (values.size() % kBlock == 0) return;
  const std::span<T> last = values.last(kBlock);
  for (T& value : last) value = next_uniform<T>();
  transform(last);
}

Tensor TorchGenerator::normal(double mean, double std, DType dtype, const Shape& shape) {
  if (!(std >= 0)) fail_data("std: expected a number >= 0, found " + decimal(std));
  return filled_floats(dtype, shape,
                       [&]<class T>(std::span<T> values) { fill_normal(mean, std, values); });
}

Tensor TorchGenerator::randint(int128 low, int128 high, DType dtype, const Shape& shape) {
  check_number_dtype(dtype);
  Tensor result(dtype, shape);
  if (result.size() == 0) return result;
  check_integers(low, high, dtype);
  const auto range = static_cast<std::uint64_t>(high - low);
  constexpr std::uint64_t kLongRange = std::uint64_t{1} << 28;
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_arithmetic_v<T>) {
      for (T& value : result.mutable_data<T>()) {
        const std::uint64_t word = range >= kLongRange ? bits_.next64() : bits_.next32();
        // Modulo 2^64, because the sum of the two as signed integers may overflow.
        value = static_cast<T>(
            static_cast<std::int64_t>(word % range + static_cast<std::uint64_t>(low)));
      }
    }
  });
  return result;
}

Tensor TorchGenerator::randperm(std::int64_t n) {
  if (n < 0 || n >= kLongPermutation)
    fail_data("n: expected 0 to " + std::to_string(kLongPermutation - 1) + ", found " +
              std::to_string(n));
  Tensor result(DType::i64, {static_cast<std::size_t>(n)});
  const auto values = result.mutable_data<std::int64_t>();
  std::iota(values.begin(), values.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < values.size(); ++i)
    std::swap(values[i], values[i + bits_.next32() % (values.size() - i)]);
  return result;
}

Tensor TorchGenerator::bernoulli(double p, DType dtype, const Shape& shape) {
  if (!(p >= 0 && p <= 1)) fail_data("p: expected 0 to 1, found " + decimal(p));
  check_number_dtype(dtype);
  Tensor result(dtype, shape);
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_arithmetic_v<T>)
      for (T& value : result.mutable_data<T>()) value = static_cast<T>(next_uniform<double>() < p);
  });
  return result;
}

Tensor TorchGenerator::bernoulli(const Tensor& p) {
  return filled_floats(p.dtype(), p.shape(), [&]<class T>(std::span<T> values) {
    const std::span<const T> probabilities = p.data<T>();
    for (const T value : probabilities)
      if (!(value >= 0 && value <= 1)) fail_data("p: expected 0 to 1, found " + decimal(value));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(next_uniform<T>() < probabilities[i]);
  });
}

namespace {

struct Fans {
  double in, out;
};

Fans fans(const Shape& shape) {
  if (shape.size() < 2)
    fail_data({.subject = "shape", .expected = "two axes or more", .found = to_string(shape)});
  double field = 1;
  for (std::size_t axis = 2; axis < shape.size(); ++axis) field *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[1]) * field, static_cast<double>(shape[0]) * field};
}

/// torch.nn.init.calculate_gain.
double gain_of(const Kaiming& options) {
  const std::string& name = options.nonlinearity;
  if (name == "linear" || name == "sigmoid") return 1;
  if (name == "tanh") return 5.0 / 3;
  if (name == "relu") return std::sqrt(2.0);
  if (name == "leaky_relu") return std::sqrt(2.0 / (1 + options.a * options.a));
  if (name == "selu") return 3.0 / 4;
  fail_data({.subject = "nonlinearity",
             .expected = "linear, sigmoid, tanh, relu, leaky_relu or selu",
             .found = "'" + printable(name) + "'"});
}

double kaiming_deviation(const Kaiming& options, const Shape& shape) {
  const auto [in, out] = fans(shape);
  return gain_of(options) / std::sqrt(options.fan_out ? out : in);
}

double xavier_deviation(double gain, const Shape& shape) {
  const auto [in, out] = fans(shape);
  return gain * std::sqrt(2.0 / (in + out));
}

/// From [-sqrt(3) deviation, sqrt(3) deviation).
Tensor uniform_of_deviation(TorchGenerator& generator, double deviation, DType dtype,
                            const Shape& shape) {
  const double bound = std::sqrt(3.0) * deviation;
  return generator.uniform(-bound, bound, dtype, shape);
}

/// Whether there is nothing to draw, so that a fan may be 0.
bool is_empty(const Shape& shape) { return element_count(shape) == 0; }

}  // namespace

Tensor kaiming_uniform(TorchGenerator& generator, const Kaiming& options, DType dtype,
                       const Shape& shape) {
  const double deviation = kaiming_deviation(options, shape);
  return uniform_of_deviation(generator, is_empty(shape) ? 0 : deviation, dtype, shape);
}

Tensor kaiming_normal(TorchGenerator& generator, const Kaiming& options, DType dtype,
                      const Shape& shape) {
  const double deviation = kaiming_deviation(options, shape);
  return generator.normal(0, is_empty(shape) ? 0 : deviation, dtype, shape);
}

Tensor xavier_uniform(TorchGenerator& generator, double gain, DType dtype, const Shape& shape) {
  const double deviation = xavier_deviation(gain, shape);
  return uniform_of_deviation(generator, is_empty(shape) ? 0 : deviation, dtype, shape);
}

Tensor xavier_normal(TorchGenerator& generator, double gain, DType dtype, const Shape& shape) {
  const double deviation = xavier_deviation(gain, shape);
  return generator.normal(0, is_empty(shape) ? 0 : deviation, dtype, shape);
}

TensorMap linear_layer(TorchGenerator& generator, std::size_t in, std::size_t out, bool has_bias,
                       DType dtype) {
  TensorMap layer;
  layer.set("weight", kaiming_uniform(generator, {.a = std::sqrt(5.0)}, dtype, {out, in}));
  const double bound = in == 0 ? 0 : 1 / std::sqrt(static_cast<double>(in));
  if (has_bias) layer.set("bias", generator.uniform(-bound, bound, dtype, {out}));
  return layer;
}

TensorMap attention_layer(TorchGenerator& generator, const AttentionWidths& widths, bool has_bias,
                          DType dtype) {
  const std::size_t E = widths.embed;
  const Tensor W_O = linear_layer(generator, E, E, has_bias, dtype).at("weight");
  const auto weight = [&](std::size_t out, std::size_t in) {
    return xavier_uniform(generator, 1, dtype, {out, in});
  };
  TensorMap layer;
  if (widths.key == E && widths.value == E) {
    layer.set("in_proj_weight", weight(3 * E, E));
  } else {
    layer.set("q_proj_weight", weight(E, E));
    layer.set("k_proj_weight", weight(E, widths.key));
    layer.set("v_proj_weight", weight(E, widths.value));
  }
  if (has_bias) layer.set("in_proj_bias", Tensor(dtype, {3 * E}));
  layer.set("out_proj.weight", W_O);
  if (has_bias) layer.set("out_proj.bias", Tensor(dtype, {E}));
  return layer;
}

}  // namespace attn
