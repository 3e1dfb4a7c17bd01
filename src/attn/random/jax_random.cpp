#include "attn/random/jax_random.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string_view>
#include <type_traits>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/random/cephes_log.h"
#include "attn/random/random_state.h"

namespace attn {
namespace {

/// The block cipher: 20 rounds, with a part of the key added after every four.
ThreefryKey threefry(ThreefryKey key, std::uint32_t x, std::uint32_t y) {
  constexpr std::array<std::array<int, 4>, 2> kRotations = {{{13, 15, 26, 6}, {17, 29, 16, 24}}};
  const std::array<std::uint32_t, 3> parts = {key.high, key.low, key.high ^ key.low ^ 0x1BD11BDAu};
  x += parts[0];
  y += parts[1];
  for (std::uint32_t i = 0; i < 5; ++i) {
    for (const int rotation : kRotations[i % 2]) {
      x += y;
      y = std::rotl(y, rotation) ^ x;
    }
    x += parts[(i + 1) % 3];
    y += parts[(i + 2) % 3] + i + 1;
  }
  return {x, y};
}

[[noreturn]] void refuse_key(const std::string& steps) {
  fail_data({.subject = "key",
             .expected = "steps such as split[1], split(3)[0] or fold_in(7)",
             .found = "'" + printable(steps) + "'"});
}

/// Reads the steps of a key from the left.
class KeySteps {
 public:
  explicit KeySteps(const std::string& steps) : steps_(steps), rest_(steps_) {}

  bool at_end() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return rest_.empty();
  }
  /// Whether a space or the end follows.
  bool at_space() const { return rest_.empty() || rest_.starts_with(' '); }
  bool takes(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  /// A number that `close` follows.
  std::uint32_t number(std::string_view close) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) refuse_key(steps_);
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    if (!takes(close)) refuse_key(steps_);
    return value;
  }
  [[noreturn]] void refuse() const { refuse_key(steps_); }

 private:
  const std::string& steps_;
  std::string_view rest_;
};

/// log(x) for x in (0, 1], in the order of operations of XLA's code for CPUs.
float xla_log(float x) {
  constexpr std::array<float, 9> c = kCephesLogTerms;
  int exponent = 0;
  float fraction = std::frexp(x, &exponent);  // [0.5, 1)
  if (fraction < kCephesSqrtHalf) {
    --exponent;
    fraction = (fraction - 1) + fraction;
  } else {
    fraction -= 1;
  }
  const float square = fraction * fraction, cube = square * fraction;
  const auto quadratic = [&](std::size_t i) {
    return std::fma(std::fma(c[i], fraction, c[i + 1]), fraction, c[i + 2]);
  };
  const float sum = std::fma(std::fma(quadratic(0), cube, quadratic(3)), cube, quadratic(6));
  const auto power = static_cast<float>(exponent);
  const float low = std::fma(sum, cube, power * kCephesLog2Low);
  return std::fma(power, kCephesLog2High, std::fma(-0.5f, square, fraction) + low);
}

template <std::size_t N>
float polynomial(const std::array<float, N>& coefficients, float x) {
  float sum = coefficients[0];
  for (std::size_t i = 1; i < N; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

/// log(1 + x) for x in (-1, 0].
float xla_log1p(float x) {
  constexpr std::array<float, 7> kNumerator = {
      4.5270000862445199635215e-5f, 4.9854102823193375972212e-1f, 6.5787325942061044846969f,
      2.9911919328553073277375e1f,  6.0949667980987787057556e1f,  5.7112963590585538103336e1f,
      2.0039553499201281259648e1f};
  constexpr std::array<float, 7> kDenominator = {1.0f,
                                                 1.5062909083469192043167e1f,
                                                 8.3047565967967209469434e1f,
                                                 2.2176239823732856465394e2f,
                                                 3.0909872225312059774938e2f,
                                                 2.1642788614495947685003e2f,
                                                 6.0118660497603843919306e1f};
  constexpr float kSmall = 0.41421356237309504880f;  // sqrt(2) - 1
  if (std::abs(x) >= kSmall) return xla_log(1 + x);
  const float square = x * x;
  const float cubic = x * square * (polynomial(kNumerator, x) / polynomial(kDenominator, x));
  return x + std::fma(-0.5f, square, cubic);
}

/// The inverse of the error function in (-1, 1).
float inverse_erf(float x) {
  constexpr std::array<float, 9> kCentral = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                             -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                             -0.00417768164f,  0.246640727f,    1.50140941f};
  constexpr std::array<float, 9> kOuter = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                                           -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                                           0.00943887047f,   1.00167406f,     2.83297682f};
  const float w = -xla_log1p(-x * x);
  return x * (w < 5 ? polynomial(kCentral, w - 2.5f) : polynomial(kOuter, std::sqrt(w) - 3));
}

/// In [0, 1): the leading bits of a word as the digits of a number in [1, 2), minus 1.
float unit_of(std::uint32_t word) { return std::bit_cast<float>(word >> 9 | 0x3F800000u) - 1; }
double unit_of(std::uint64_t word) {
  return std::bit_cast<double>(word >> 12 | 0x3FF0000000000000u) - 1;
}

}  // namespace

ThreefryKey JaxRandom::key(const std::string& steps) const {
  ThreefryKey key = root_;
  KeySteps rest(steps);
  while (!rest.at_end()) {
    if (rest.takes("fold_in(")) {
      key = threefry(key, 0, rest.number(")"));
    } else if (rest.takes("split")) {
      const std::uint32_t count = rest.takes("(") ? rest.number(")") : 2;
      if (!rest.takes("[")) rest.refuse();
      const std::uint32_t index = rest.number("]");
      if (index >= count || count > std::numeric_limits<std::uint32_t>::max() / 2) rest.refuse();
      key = split(key, count, index);
    } else {
      rest.refuse();
    }
    if (!rest.at_space()) rest.refuse();
  }
  return key;
}

ThreefryKey JaxRandom::split(ThreefryKey key, std::uint32_t count, std::uint32_t index) const {
  if (partitionable_) return threefry(key, 0, index);
  // Word i of 2 count words is the first half of block i, or the second half of block i - count.
  const auto word = [&](std::uint32_t i) {
    return i < count ? threefry(key, i, count + i).high : threefry(key, i - count, i).low;
  };
  return {word(2 * index), word(2 * index + 1)};
}

/// Word `index` of `size` words.
template <class Word>
Word JaxRandom::bits(ThreefryKey key, std::size_t size, std::size_t index) const {
  const auto low = static_cast<std::uint32_t>(index);
  if constexpr (sizeof(Word) == 8) {
    const ThreefryKey block = partitionable_
                                  ? threefry(key, static_cast<std::uint32_t>(index >> 32), low)
                                  : threefry(key, low, static_cast<std::uint32_t>(size + index));
    return std::uint64_t{block.high} << 32 | block.low;
  } else {
    if (partitionable_) {
      const ThreefryKey block = threefry(key, static_cast<std::uint32_t>(index >> 32), low);
      return block.high ^ block.low;
    }
    // The second half of the words are the second halves of the blocks; an odd size is padded by 0.
    const std::size_t half = size / 2 + size % 2;
    const std::size_t first = index < half ? index : index - half, second = half + first;
    const ThreefryKey block = threefry(key, static_cast<std::uint32_t>(first),
                                       second < size ? static_cast<std::uint32_t>(second) : 0);
    return index < half ? block.high : block.low;
  }
}

Tensor JaxRandom::uniform(ThreefryKey key, double minval, double maxval, DType dtype,
                          const Shape& shape) const {
  if (dtype != DType::f32 && dtype != DType::f64)
    fail_data({.subject = "dtype",
               .expected = "float32 or float64",
               .found = std::string(name_of(dtype))});
  Tensor result(dtype, shape);
  const auto fill = [&]<class T>(std::span<T> values) {
    using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    const T low = static_cast<T>(minval), width = static_cast<T>(maxval) - low;
    if (!(width > 0) || !std::isfinite(width))
      fail_data("bounds: expected minval < maxval and a finite difference, found [" +
                decimal(minval) + ", " + decimal(maxval) + ")");
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::max(low, std::fma(unit_of(bits<Word>(key, values.size(), i)), width, low));
  };
  if (dtype == DType::f32)
    fill(result.mutable_data<float>());
  else
    fill(result.mutable_data<double>());
  return result;
}

Tensor JaxRandom::normal(ThreefryKey key, const Shape& shape) const {
  Tensor result = uniform(key, -1 + 0x1p-24, 1, DType::f32, shape);
  for (float& value : result.mutable_data<float>())
    value = std::numbers::sqrt2_v<float> * inverse_erf(value);
  return result;
}

Tensor JaxRandom::randint(ThreefryKey key, int128 minval, int128 maxval, DType dtype,
                          const Shape& shape) const {
  if (dtype == DType::boolean)
    fail_data({.subject = "dtype", .expected = "an integer type", .found = "bool"});
  checked_range(minval, maxval, dtype);
  Tensor result(dtype, shape);
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
      const auto values = result.mutable_data<T>();
      const ThreefryKey high = split(key, 2, 0), low = split(key, 2, 1);
      const auto span = static_cast<Word>(maxval - minval);  // 0: the whole range of the words
      const auto remainder = [&](Word word) { return span == 0 ? word : word % span; };
      const Word root = remainder(Word{1} << sizeof(Word) * 4), factor = remainder(root * root);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Word offset = remainder(remainder(bits<Word>(high, values.size(), i)) * factor +
                                      remainder(bits<Word>(low, values.size(), i)));
        values[i] = static_cast<T>(static_cast<Word>(minval) + offset);
      }
    }
  });
  return result;
}

Tensor JaxRandom::bernoulli(ThreefryKey key, double p, const Shape& shape) const {
  if (!(p >= 0 && p <= 1)) fail_data("p: expected 0 to 1, found " + decimal(p));
  const Tensor uniforms = uniform(key, 0, 1, DType::f32, shape);
  Tensor result(DType::boolean, shape);
  const auto values = result.mutable_data<bool>();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = uniforms.data<float>()[i] < static_cast<float>(p);
  return result;
}

}  // namespace attn
