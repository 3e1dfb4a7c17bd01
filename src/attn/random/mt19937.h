// The Mersenne Twister MT19937: Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally
// equidistributed uniform pseudo-random number generator", ACM TOMACS 8:1 (1998), seeded as in
// their revision of 2002.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace attn {

class Mt19937 {
 public:
  explicit Mt19937(std::uint32_t seed);
  explicit Mt19937(std::span<const std::uint32_t> key);  ///< throws Error (data) if empty

  std::uint32_t next32();
  std::uint64_t next64();  ///< two words, the high one first
  double next_double();    ///< [0, 1), 53 bits: two words

 private:
  static constexpr std::size_t kWords = 624;

  std::array<std::uint32_t, kWords> state_{};
  std::size_t position_ = 0;  ///< the next word to update and return
};

}  // namespace attn
