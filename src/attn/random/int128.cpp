#include "attn/random/int128.h"

#include <algorithm>

namespace attn {

std::string to_string(int128 value) {
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

}  // namespace attn
