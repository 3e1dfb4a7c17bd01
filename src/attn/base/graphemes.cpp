#include "attn/base/graphemes.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "attn/base/utf8.h"

namespace attn {
namespace {

std::size_t character_length(std::string_view text, std::size_t at) {
  return std::max<std::size_t>(utf8_length(text, at), 1);
}

std::int32_t character_at(std::string_view text, std::size_t at) {
  constexpr std::int32_t kReplacement = 0xFFFD;
  return utf8_length(text, at) == 0 ? kReplacement
                                    : static_cast<std::int32_t>(code_point(text, at));
}

/// A cluster has the width of its characters, but at most 2: of joined emoji only one is drawn.
std::size_t columns_of_grapheme(std::string_view grapheme) {
  constexpr std::int32_t kEmojiStyle = 0xFE0F;
  std::size_t columns = 0;
  for (std::size_t i = 0; i < grapheme.size(); i += character_length(grapheme, i)) {
    const std::int32_t code = character_at(grapheme, i);
    if (code == kEmojiStyle) return 2;
    columns += static_cast<std::size_t>(utf8proc_charwidth(code));
  }
  return std::min<std::size_t>(columns, 2);
}

}  // namespace

std::size_t grapheme_length(std::string_view text, std::size_t at) {
  constexpr std::size_t kLongest = 128;
  std::size_t end = at + character_length(text, at);
  std::int32_t state = 0, last = character_at(text, at);
  while (end < text.size() && end - at < kLongest && utf8_length(text, end) > 0) {
    const std::int32_t next = character_at(text, end);
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    end += character_length(text, end);
    last = next;
  }
  return end - at;
}

std::vector<std::string_view> graphemes_of(std::string_view text) {
  std::vector<std::string_view> graphemes;
  for (std::size_t i = 0; i < text.size(); i += graphemes.back().size())
    graphemes.push_back(text.substr(i, grapheme_length(text, i)));
  return graphemes;
}

std::size_t columns_of(std::string_view text) {
  const auto is_ascii = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text.size();
  std::size_t columns = 0;
  for (const std::string_view grapheme : graphemes_of(text))
    columns += columns_of_grapheme(grapheme);
  return columns;
}

std::string cut_to_columns(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::string out;
  std::size_t used = 1;  // the ellipsis
  for (const std::string_view grapheme : graphemes_of(text)) {
    used += columns_of_grapheme(grapheme);
    if (used > columns) break;
    out += grapheme;
  }
  return columns == 0 ? "" : out + "…";
}

bool is_invisible(char32_t code) {
  switch (utf8proc_category(static_cast<std::int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

}  // namespace attn
