// Text for messages and JSON: joins, counts, file names as UTF-8, and escapes for terminals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// The items, or text(item) for each, with `separator` between them.
template <std::ranges::input_range Items, class Text>
std::string join(const Items& items, std::string_view separator, Text text) {
  std::string joined;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) joined += separator;
    joined += text(item);
    is_first = false;
  }
  return joined;
}

template <std::ranges::input_range Items>
std::string join(const Items& items, std::string_view separator) {
  return join(
      items, separator, [](const auto& item) -> const auto& { return item; });
}

/// text(item) for each of the items; `text` may be a pointer to a member.
template <std::ranges::input_range Items, class Text>
std::vector<std::string> texts_of(const Items& items, Text text) {
  std::vector<std::string> texts;
  for (const auto& item : items) texts.emplace_back(std::invoke(text, item));
  return texts;
}

/// The lines of a text, without "\n" and "\r\n".
std::vector<std::string> split_lines(std::string_view text);

/// The words of a text on lines that are as long as `fits` permits, if they have several words.
std::vector<std::string> wrapped_lines(std::string_view text,
                                       const std::function<bool(const std::string&)>& fits);

/// "a,,b" as "a", "" and "b".
std::vector<std::string> split_at_commas(const std::string& text);

/// "a", "a or b", "a, b or c".
std::string join_or(const std::vector<std::string>& items);

/// "a, b and 4 more": at most `most` of the names, safe to print.
std::string list_names(const std::vector<std::string>& names, std::size_t most = 10);
/// The same for the first of `count` names.
std::string list_first_names(const std::vector<std::string>& first, std::size_t count);

/// Whether `a` comes before `b` if whole numbers in names are compared by value: "arr_9" before
/// "arr_10".
bool precedes_naturally(std::string_view a, std::string_view b);

/// Two lower-case hexadecimal digits.
inline void append_hex(std::string& out, std::uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

/// "1 cell", "2 cells".
inline std::string counted(std::size_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

/// The name, with bytes that are not UTF-8 as \xNN and a backslash before an x as \x5c. Different
/// names have different texts.
std::string text_of_name(std::string_view name);

/// The inverse of text_of_name().
std::string name_of_text(std::string_view text);

/// `text` with control characters, invisible characters, bytes that are not UTF-8 and the backslash
/// of "\x" as \xNN, so that a name from a file cannot move the cursor, forge a line or look like
/// another name. Cut after 200 bytes, at the end of a grapheme cluster.
std::string printable(const std::string& text);

/// The same for a message, cut after 4,000 bytes; it keeps the backslashes of printable() names.
std::string printable_message(const std::string& text);

/// The same for lines of any length; it also keeps line breaks, so that names in it must be
/// printable() already, and with `colours`, escape sequences such as "\x1b[38;5;16m".
std::string printable_lines(std::string_view text, bool colours = false);

}  // namespace attn
