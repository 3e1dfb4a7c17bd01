#include "attn/random/generator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <numeric>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "attn/base/error.h"
#include "attn/random/random_state.h"
#include "attn/random/selection.h"
#include "attn/random/ziggurat.h"

namespace attn {

std::string decimal(int128 value) {
  std::string reversed;
  uint128 rest = value < 0 ? -static_cast<uint128>(value) : static_cast<uint128>(value);
  do {
    reversed += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (value < 0) reversed += '-';
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

std::string decimal(double value) {
  std::array<char, 32> text{};  // the longest is "-2.2250738585072014e-308"
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

namespace {

/// The term of the previous word in the three recurrences that fill the state.
std::uint32_t scrambled(std::uint32_t word, std::uint32_t multiplier) {
  return (word ^ word >> 30) * multiplier;
}

}  // namespace

/// Each word depends on the one before it, so all of them would take 8 % of the time of a small
/// job. The first number needs kMiddle words and one more, and each further number another one.
Mt19937::Mt19937(std::uint32_t seed) {
  state_[0] = seed;
  seed_to(kMiddle);
}

void Mt19937::seed_to(std::size_t count) {
  std::uint32_t word = state_[seeded_ - 1];  // not read back in the loop
#pragma GCC unroll 6
  for (std::size_t i = seeded_; i < count; ++i)
    state_[i] = word = scrambled(word, 1812433253u) + static_cast<std::uint32_t>(i);
  seeded_ = count;
}

Mt19937::Mt19937(std::span<const std::uint32_t> key) : Mt19937(19650218u) {
  if (key.empty()) fail_data("seed: expected at least one number, found none");
  seed_to(kWords);
  // Both passes cycle through words 1 to 623; word 0 is a copy of the last one.
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (std::size_t k = 0; k < std::max(kWords, key.size()); ++k, advance()) {
    const auto j = static_cast<std::uint32_t>(k % key.size());
    state_[i] = (state_[i] ^ scrambled(state_[i - 1], 1664525u)) + key[j] + j;
  }
  for (std::size_t k = 1; k < kWords; ++k, advance())
    state_[i] = (state_[i] ^ scrambled(state_[i - 1], 1566083941u)) - static_cast<std::uint32_t>(i);
  state_[0] = 0x80000000u;  // the state must not be all zeros
}

std::uint32_t Mt19937::next32() {
  // Words are updated one by one when they are returned, because most streams use far fewer than
  // 624.
  if (seeded_ < kWords) seed_to(seeded_ + 1);
  const std::size_t i = position_;
  position_ = i + 1 < kWords ? i + 1 : 0;
  const std::uint32_t joined = (state_[i] & 0x80000000u) | (state_[position_] & 0x7FFFFFFFu);
  const std::uint32_t matrix = (joined & 1u) != 0 ? 0x9908B0DFu : 0u;
  const std::size_t middle = i + kMiddle < kWords ? i + kMiddle : i + kMiddle - kWords;
  std::uint32_t word = state_[i] = state_[middle] ^ joined >> 1 ^ matrix;
  word ^= word >> 11;
  word ^= word << 7 & 0x9D2C5680u;
  word ^= word << 15 & 0xEFC60000u;
  return word ^ word >> 18;
}

std::uint64_t Mt19937::next64() {
  const std::uint64_t high = next32();
  return high << 32 | next32();
}

double Mt19937::next_double() {
  const std::uint32_t high = next32() >> 5, low = next32() >> 6;  // 27 and 26 bits
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

namespace {

using EntropyPool = std::array<std::uint32_t, 4>;

std::uint32_t folded(std::uint32_t word) { return word ^ word >> 16; }

/// A hash whose constant changes with every word.
struct Hash {
  std::uint32_t constant, multiplier;

  std::uint32_t operator()(std::uint32_t word) {
    word ^= constant;
    constant *= multiplier;
    return folded(word * constant);
  }
};

std::uint32_t mixed(std::uint32_t x, std::uint32_t y) {
  return folded(0xCA01F9DDu * x - 0x4973F715u * y);
}

EntropyPool entropy_pool(std::span<const std::uint32_t> entropy) {
  Hash hash{0x43B0D7E5u, 0x931E8875u};
  EntropyPool pool;
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i < entropy.size() ? entropy[i] : 0);
  for (std::size_t from = 0; from < pool.size(); ++from)
    for (std::size_t to = 0; to < pool.size(); ++to)
      if (to != from) pool[to] = mixed(pool[to], hash(pool[from]));
  for (std::size_t i = pool.size(); i < entropy.size(); ++i)
    for (std::uint32_t& word : pool) word = mixed(word, hash(entropy[i]));
  return pool;
}

}  // namespace

Pcg64::Pcg64(std::span<const std::uint32_t> entropy) {
  const EntropyPool pool = entropy_pool(entropy);
  Hash hash{0x8B51F9DDu, 0x58F38DEDu};
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < 8; ++i)
    words[i / 2] |= std::uint64_t{hash(pool[i % 4])} << (i % 2 * 32);

  const uint128 start = uint128{words[0]} << 64 | words[1];
  const uint128 stream = uint128{words[2]} << 64 | words[3];
  increment_ = stream << 1 | 1u;
  step();
  state_ += start;
  step();
}

void Pcg64::step() {
  constexpr uint128 kMultiplier = uint128{0x2360ED051FC65DA4u} << 64 | 0x4385DF649FCCF645u;
  state_ = state_ * kMultiplier + increment_;
}

std::uint64_t Pcg64::next64() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  const auto low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint32_t Pcg64::next32() {
  if (half_) {
    const std::uint32_t high = *half_;
    half_.reset();
    return high;
  }
  const std::uint64_t word = next64();
  half_ = static_cast<std::uint32_t>(word >> 32);
  return static_cast<std::uint32_t>(word);
}

double Pcg64::next_double() {
  return static_cast<double>(next64() >> 11) * (1.0 / 9007199254740992.0);
}

float Pcg64::next_float() { return static_cast<float>(next32() >> 8) * (1.0f / 16777216.0f); }

Generator::Generator(const std::vector<std::uint32_t>& entropy) : bits_(entropy) {}

Generator::Generator(std::uint64_t seed) : Generator(*entropy_words(std::to_string(seed))) {}

Tensor Generator::random(const Shape& shape) { return uniform_doubles(bits_, 0, 1, shape); }

Tensor Generator::random_f32(const Shape& shape) {
  Tensor result(DType::f32, shape);
  for (float& value : result.mutable_data<float>()) value = bits_.next_float();
  return result;
}

Tensor Generator::uniform(double low, double high, const Shape& shape) {
  if (high < low)
    fail_data("bounds: expected low <= high, found [" + decimal(low) + ", " + decimal(high) + ")");
  return uniform_doubles(bits_, low, high, shape);
}

Tensor Generator::integers(int128 low, int128 high, DType dtype, const Shape& shape) {
  return bounded_integers<Rejection::lemire>(bits_, low, high, dtype, shape);
}

Tensor Generator::standard_normal(const Shape& shape) {
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = ziggurat_normal(bits_);
  return result;
}

Tensor Generator::standard_normal_f32(const Shape& shape) {
  Tensor result(DType::f32, shape);
  for (float& value : result.mutable_data<float>()) value = ziggurat_normal_f32(bits_);
  return result;
}

Tensor Generator::normal(double loc, double scale, const Shape& shape) {
  check_scale(scale);
  Tensor result(DType::f64, shape);
  for (double& value : result.mutable_data<double>()) value = loc + scale * ziggurat_normal(bits_);
  return result;
}

void Generator::shuffle(Tensor& tensor) { shuffle_rows(bits_, tensor); }

Tensor Generator::permutation(std::int64_t n) { return shuffled_range(bits_, n); }

/// Distinct integers from [0, n).
Tensor Generator::distinct(std::int64_t n, const Shape& shape, bool shuffled) {
  Tensor result(DType::i64, shape);
  const auto found = result.mutable_data<std::int64_t>();
  const auto swap_in = [](std::span<std::int64_t> values) {
    return [values](std::size_t i, std::size_t j) { std::swap(values[i], values[j]); };
  };
  const auto population = static_cast<std::size_t>(n);
  constexpr std::size_t kLarge = 10000;
  if (population > kLarge && found.size() > population / (shuffled ? 50 : 20)) {
    Tensor range(DType::i64, {population});
    const auto values = range.mutable_data<std::int64_t>();
    std::iota(values.begin(), values.end(), std::int64_t{0});
    const std::size_t first = std::max<std::size_t>(population - found.size(), 1);
    fisher_yates<Rejection::lemire>(bits_, population, first, swap_in(values));
    const auto last = values.last(found.size());
    std::copy(last.begin(), last.end(), found.begin());
    return result;
  }
  std::unordered_set<std::int64_t> drawn;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t limit = population - found.size() + i;
    const auto value = static_cast<std::int64_t>(bounded_draw<Rejection::lemire>(bits_, limit));
    found[i] = drawn.insert(value).second ? value : static_cast<std::int64_t>(limit);
    if (found[i] != value) drawn.insert(found[i]);
  }
  if (shuffled) fisher_yates<Rejection::lemire>(bits_, found.size(), 1, swap_in(found));
  return result;
}

Tensor Generator::choice(std::int64_t n, const Shape& shape, bool replace,
                         const std::optional<std::vector<double>>& p, bool shuffled) {
  check_choice(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)), element_count(shape),
               replace, p);
  if (p) return weighted_choice(bits_, shape, replace, *p);
  return replace ? integers(0, n, DType::i64, shape) : distinct(n, shape, shuffled);
}

Tensor Generator::choice(const Tensor& population, const Shape& shape, bool replace,
                         const std::optional<std::vector<double>>& p, bool shuffled) {
  return picked(population, choice(one_axis_size(population), shape, replace, p, shuffled));
}

std::optional<std::vector<std::uint32_t>> entropy_words(std::string_view digits) {
  if (digits.empty() || digits.size() > kMaxSeedDigits) return std::nullopt;
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
