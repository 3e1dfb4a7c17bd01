#include "attn/base/name_text.h"

#include <charconv>

#include "attn/base/text.h"
#include "attn/base/utf8.h"

namespace attn {

std::string text_of_name(std::string_view name) {
  const bool plain = name.find('\\') == name.npos && find_invalid_utf8(name) == name.npos;
  if (plain) return std::string(name);
  std::string text;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t length = utf8_length(name, at);
    if (length > 0 && !name.substr(at).starts_with("\\x")) {
      text.append(name, at, length);
      at += length;
    } else {
      text += "\\x";
      append_hex(text, static_cast<std::uint8_t>(name[at++]));
    }
  }
  return text;
}

std::string name_of_text(std::string_view text) {
  std::string name;
  while (!text.empty()) {
    unsigned char byte = 0;
    const char* const digits = text.data() + 2;
    const bool escaped = text.size() >= 4 && text.starts_with("\\x") &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    name += escaped ? static_cast<char>(byte) : text.front();
    text.remove_prefix(escaped ? 4 : 1);
  }
  return name;
}

}  // namespace attn
