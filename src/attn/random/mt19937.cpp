#include "attn/random/mt19937.h"

#include <algorithm>

#include "attn/base/error.h"

namespace attn {
namespace {

/// The term of the previous word in the three recurrences that fill the state.
std::uint32_t scrambled(std::uint32_t word, std::uint32_t multiplier) {
  return (word ^ word >> 30) * multiplier;
}

}  // namespace

Mt19937::Mt19937(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) state_[i] = scrambled(state_[i - 1], 1812433253u) + i;
}

Mt19937::Mt19937(std::span<const std::uint32_t> key) : Mt19937(19650218u) {
  if (key.empty()) throw Error(ErrorKind::data, "seed: expected at least one number, found none");
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
  constexpr std::size_t kMiddle = 397;
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

}  // namespace attn
