#include "attn/random/pcg64.h"

#include <array>
#include <bit>

namespace attn {
namespace {

using Pool = std::array<std::uint32_t, 4>;

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

Pool entropy_pool(std::span<const std::uint32_t> entropy) {
  Hash hash{0x43B0D7E5u, 0x931E8875u};
  Pool pool;
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
  const Pool pool = entropy_pool(entropy);
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

}  // namespace attn
