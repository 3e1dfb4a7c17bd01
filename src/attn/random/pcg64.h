// PCG64 XSL-RR 128/64: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", HMC-CS-2014-0905 (2014).
//
// Seeded as NumPy does, through SeedSequence: a pool of four 32-bit words into which the entropy
// is hashed (after O'Neill's "Developing a seed_seq Alternative", 2015), and out of which come 128
// bits of state and 128 of stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "attn/random/int128.h"

namespace attn {

class Pcg64 {
 public:
  /// 32-bit words, least significant first; none at all is the entropy 0.
  explicit Pcg64(std::span<const std::uint32_t> entropy);

  std::uint32_t next32();  ///< the low half of a word; the next call gives its high half
  std::uint64_t next64();  ///< a whole word; a kept half stays kept
  double next_double();    ///< [0, 1), 53 bits of a whole word

 private:
  void step();

  uint128 state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> half_;
};

}  // namespace attn
