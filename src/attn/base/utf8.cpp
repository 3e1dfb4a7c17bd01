#include "attn/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace attn {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

bool is_continuation(std::string_view text, std::size_t at) {
  return (byte_at(text, at) & 0xC0u) == 0x80u;
}

std::uint32_t code_point(std::string_view text, std::size_t at, std::size_t length) {
  std::uint32_t code = byte_at(text, at) & (0x7Fu >> length);
  for (std::size_t k = 1; k < length; ++k) code = code << 6 | (byte_at(text, at + k) & 0x3Fu);
  return code;
}

/// The number of ASCII characters at the start, a multiple of eight.
std::size_t ascii_length(std::string_view text) {
  std::size_t length = 0;
  for (std::uint64_t word; text.size() - length >= sizeof word; length += sizeof word) {
    std::memcpy(&word, text.data() + length, sizeof word);
    if (word & 0x8080808080808080u) break;
  }
  return length;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const std::uint32_t lead = byte_at(text, at);
  if (at >= text.size()) return 0;
  if (lead < 0x80u) return 1;
  const std::size_t length = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : 2;
  if (lead < 0xC2u || lead > 0xF4u) return 0;
  for (std::size_t k = 1; k < length; ++k)
    if (!is_continuation(text, at + k)) return 0;
  const std::uint32_t code = code_point(text, at, length);
  const bool overlong = (length == 3 && code < 0x800u) || (length == 4 && code < 0x10000u);
  const bool surrogate = code >= 0xD800u && code <= 0xDFFFu;
  return overlong || surrogate || code > 0x10FFFFu ? 0 : length;
}

std::uint32_t code_point(std::string_view text, std::size_t at) {
  const std::size_t length = utf8_length(text, at);
  return length < 2 ? byte_at(text, at) : code_point(text, at, length);
}

void append_utf8(std::string& text, std::uint32_t code) {
  const int continuations = code < 0x80u ? 0 : code < 0x800u ? 1 : code < 0x10000u ? 2 : 3;
  constexpr std::uint32_t kLead[] = {0, 0xC0u, 0xE0u, 0xF0u};
  text += static_cast<char>(kLead[continuations] | code >> 6 * continuations);
  for (int k = continuations - 1; k >= 0; --k)
    text += static_cast<char>(0x80u | (code >> 6 * k & 0x3Fu));
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = ascii_length(text); i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace attn
