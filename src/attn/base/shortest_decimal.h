// The shortest decimal number that identifies a double.
#pragma once

#include <cstdint>

namespace attn {

/// digits * 10^exponent
struct ShortDecimal {
  std::uint64_t digits;  ///< at most 17 of them; the last ones can be 0
  int exponent;
};

/// The number with the fewest digits among those that read back as `value`, and of these the
/// nearest one, as std::to_chars writes it, in a third of the time. `value` is finite and above 0.
ShortDecimal shortest_decimal(double value);

}  // namespace attn
