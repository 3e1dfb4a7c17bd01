#include "attn/random/generator.h"

#include <string>

#include "attn/base/error.h"
#include "attn/random/bounded.h"
#include "attn/random/decimal.h"
#include "attn/random/uniform.h"

namespace attn {

Generator::Generator(const std::vector<std::uint32_t>& entropy) : bits_(entropy) {}

Generator::Generator(std::uint64_t seed) : Generator(*entropy_words(std::to_string(seed))) {}

Tensor Generator::random(const Shape& shape) { return uniform_doubles(bits_, 0, 1, shape); }

Tensor Generator::random_f32(const Shape& shape) {
  Tensor result(DType::f32, shape);
  for (float& value : result.mutable_data<float>())
    value = static_cast<float>(bits_.next32() >> 8) * (1.0f / 16777216.0f);
  return result;
}

Tensor Generator::uniform(double low, double high, const Shape& shape) {
  if (high < low)
    throw Error(ErrorKind::data, "bounds: expected low <= high, found [" + decimal(low) + ", " +
                                     decimal(high) + ")");
  return uniform_doubles(bits_, low, high, shape);
}

Tensor Generator::integers(int128 low, int128 high, DType dtype, const Shape& shape) {
  return bounded_integers<Rejection::lemire>(bits_, low, high, dtype, shape);
}

std::optional<std::vector<std::uint32_t>> entropy_words(std::string_view digits) {
  if (digits.empty() || digits.size() > kMostSeedDigits) return std::nullopt;
  std::vector<std::uint32_t> words = {0};
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    std::uint64_t carry = static_cast<std::uint64_t>(digit - '0');
    for (std::uint32_t& word : words) {
      carry += std::uint64_t{word} * 10;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
  }
  return words;
}

}  // namespace attn
