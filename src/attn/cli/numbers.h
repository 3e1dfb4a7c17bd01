// What flags with a number take, and what they say of anything else:
// "--threads: expected a whole number >= 1, found '0'".
#pragma once

#include <cstdint>
#include <limits>

namespace CLI {
class Option;
}

namespace attn {

/// Has the option take whole numbers from `least` to `most` alone, in decimal digits.
CLI::Option* take_whole(CLI::Option* option,
                        std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                        std::int64_t most = std::numeric_limits<std::int64_t>::max());

enum class Sign { any, not_negative, positive };

/// Has the option take finite numbers of that sign alone.
CLI::Option* take_number(CLI::Option* option, Sign sign);

}  // namespace attn
