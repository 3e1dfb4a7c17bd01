// PCG64 XSL-RR 128/64: O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
// Algorithms for Random Number Generation", HMC-CS-2014-0905 (2014).
// Seeded like NumPy's with a SeedSequence: the entropy is hashed into a pool of four 32-bit words
// (O'Neill, "Developing a seed_seq Alternative", 2015), from which 128 bits of state and 128 bits
// of stream are generated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "attn/random/int128.h"

namespace attn {

class Pcg64 {
 public:
  /// `words`: 32-bit words, least significant first; empty means 0.
  explicit Pcg64(std::span<const std::uint32_t> entropy);

  std::uint32_t next32();  ///< the low half of a 64-bit word; the next call returns its high half
  std::uint64_t next64();  ///< a new 64-bit word; does not affect a stored half
  double next_double();    ///< [0, 1), 53 bits of a 64-bit word

 private:
  void step();

  uint128 state_ = 0, increment_ = 0;
  std::optional<std::uint32_t> half_;
};

}  // namespace attn
