#include "attn/report/markup.h"

#include <algorithm>
#include <cstdint>

#include "attn/base/text.h"
#include "attn/base/utf8.h"

namespace attn {
namespace {

/// "\u003c": for characters of the Basic Multilingual Plane.
void append_escape(std::string& out, unsigned code) {
  out += "\\u";
  append_hex(out, static_cast<std::uint8_t>(code >> 8));
  append_hex(out, static_cast<std::uint8_t>(code & 0xFFu));
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

}  // namespace

std::string markup(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    const std::string_view character = text.substr(i, length);
    if (length == 0 || is_control(c) || character == "\uFFFE" || character == "\uFFFF")
      out += "\uFFFD";
    else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      out += character;
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string script_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const std::string_view character = text.substr(i, std::max<std::size_t>(length, 1));
    if (length == 0)
      append_escape(out, 0xFFFD);
    else if (character == "\u2028" || character == "\u2029")
      append_escape(out, character == "\u2028" ? 0x2028 : 0x2029);
    else if (is_control(text[i]) ||
             std::string_view("<>&\"\\'").find(text[i]) != std::string_view::npos)
      append_escape(out, static_cast<unsigned char>(text[i]));
    else
      out += character;
    i += character.size();
  }
  return out + "\"";
}

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
