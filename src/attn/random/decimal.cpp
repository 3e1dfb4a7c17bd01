#include "attn/random/decimal.h"

#include <algorithm>
#include <array>
#include <charconv>

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

}  // namespace attn
