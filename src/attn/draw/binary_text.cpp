#include "attn/draw/binary_text.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace attn {

void append_base85(std::string& out, std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|";
  static_assert(kDigits.size() == 85);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t number = 0;
    for (std::size_t k = 0; k < 4 && i + k < bytes.size(); ++k)
      number |= std::to_integer<std::uint32_t>(bytes[i + k]) << (8 * k);
    char digits[5];
    for (std::size_t k = 5; k-- > 0; number /= 85) digits[k] = kDigits[number % 85];
    out.append(digits, 5);
  }
}

void append_base64(std::string& out, std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= count ? kLetters[group >> (18 - 6 * k) & 63u] : '=';
  }
}

}  // namespace attn
