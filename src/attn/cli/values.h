// What flags with a value take, and what they say of anything else:
// "--threads: expected a whole number >= 1, found '0'".
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace CLI {
class Option;
class ParseError;
class Validator;
}  // namespace CLI

namespace attn {

/// Has the option take whole numbers from `least` to `most` alone, in decimal digits.
CLI::Option* take_whole(CLI::Option* option,
                        std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                        std::int64_t most = std::numeric_limits<std::int64_t>::max());

enum class Sign { any, not_negative, positive };

/// Has the option take finite numbers of that sign alone.
CLI::Option* take_number(CLI::Option* option, Sign sign);

/// To check() that it is one of these words; completions offer them.
CLI::Validator one_of(const std::vector<std::string>& words);

/// To check() that takes anything; completions offer these words.
CLI::Validator offering(const std::vector<std::string>& words);

/// What is said of a flag that was: ": given twice", ": given 3 times".
std::string given_times(std::size_t count);

/// What CLI11 says of a command line, in our words where a flag's value is missing, or a flag is
/// there more than once: "--threads: expected N, found nothing", "--threads: given twice".
std::string said_by(const CLI::ParseError& error);

}  // namespace attn
