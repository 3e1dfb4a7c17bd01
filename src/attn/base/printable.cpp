#include "attn/base/printable.h"

#include <algorithm>

#include "attn/base/utf8.h"

namespace attn {
namespace {

std::string escaped(const std::string& text, std::size_t longest) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (text.size() <= longest && std::all_of(text.begin(), text.end(), is_plain))
    return text;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= longest) return out + "...";
    const std::size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = byte < 0x20 || byte == 0x7F || (length > 1 && is_invisible(text, i));
    if (length == 0 || control) {
      constexpr char kHex[] = "0123456789abcdef";
      for (std::size_t k = 0; k < std::max<std::size_t>(length, 1); ++k, ++i) {
        const auto b = static_cast<unsigned char>(text[i]);
        out += {'\\', 'x', kHex[b >> 4], kHex[b & 15]};
      }
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace

std::string printable(const std::string& text) {
  constexpr std::size_t kLongestName = 200;  // a file can hold names of 64 KiB
  return escaped(text, kLongestName);
}

std::string printable_message(const std::string& text) {
  constexpr std::size_t kLongestMessage = 4000;
  return escaped(text, kLongestMessage);
}

}  // namespace attn
