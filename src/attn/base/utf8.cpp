#include "attn/base/utf8.h"

#include <utf8proc.h>

#include <algorithm>
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

std::uint32_t decoded(std::string_view text, std::size_t at, std::size_t length) {
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
  const std::uint32_t code = decoded(text, at, length);
  const bool overlong = (length == 3 && code < 0x800u) || (length == 4 && code < 0x10000u);
  const bool surrogate = code >= 0xD800u && code <= 0xDFFFu;
  return overlong || surrogate || code > 0x10FFFFu ? 0 : length;
}

std::uint32_t code_point(std::string_view text, std::size_t at) {
  const std::size_t length = utf8_length(text, at);
  return length < 2 ? byte_at(text, at) : decoded(text, at, length);
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
  constexpr std::size_t kMaxLength = 128;
  std::size_t end = at + character_length(text, at);
  std::int32_t state = 0, last = character_at(text, at);
  while (end < text.size() && end - at < kMaxLength && utf8_length(text, end) > 0) {
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

std::string left_aligned(const std::string& text, std::size_t columns) {
  return text + std::string(columns - std::min(columns, columns_of(text)), ' ');
}

std::string right_aligned(const std::string& text, std::size_t columns) {
  return std::string(columns - std::min(columns, columns_of(text)), ' ') + text;
}

std::string aligned_rows(const std::vector<std::vector<std::string>>& rows, std::size_t first_right,
                         std::size_t end_right) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i]));
  std::string text;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool is_last = i + 1 == row.size(), is_right = first_right <= i && i < end_right;
      text += is_right  ? right_aligned(row[i], widths[i])
              : is_last ? row[i]
                        : left_aligned(row[i], widths[i]);
      text += is_last ? "\n" : "  ";
    }
  return text;
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

bool joins_emoji(std::string_view text, std::size_t at, std::size_t end) {
  constexpr std::uint32_t kZeroWidthJoiner = 0x200D;
  if (code_point(text, at) != kZeroWidthJoiner) return false;
  const std::size_t next = at + utf8_length(text, at);
  return next < end && utf8_length(text, next) > 0 &&
         utf8proc_get_property(character_at(text, next))->boundclass ==
             UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
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
