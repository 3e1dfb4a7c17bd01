#include "attn/base/text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "attn/base/utf8.h"

namespace attn {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> wrapped_lines(std::string_view text,
                                       const std::function<bool(const std::string&)>& fits) {
  std::vector<std::string> lines = {""};
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string word(text.substr(start, end - start));
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (lines.back().empty() || fits(longer))
      lines.back() = longer;
    else
      lines.push_back(word);
    start = end + 1;
  }
  return lines;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

std::string join_or(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " or " : ", ") + items[i];
  return text;
}

std::string list_names(const std::vector<std::string>& names, std::size_t most) {
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  return list_first_names({names.begin(), end}, names.size());
}

std::string list_first_names(const std::vector<std::string>& first, std::size_t count) {
  std::string text = join(first, ", ", printable);
  if (count > first.size()) text += " and " + std::to_string(count - first.size()) + " more";
  return text;
}

bool precedes_naturally(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits_at = [&](std::string_view name, std::size_t at) {  // without leading zeros
    while (at + 1 < name.size() && name[at] == '0' && is_digit(name[at + 1])) ++at;
    const auto end = std::find_if_not(name.begin() + at, name.end(), is_digit);
    return name.substr(at, static_cast<std::size_t>(end - name.begin()) - at);
  };
  std::size_t i = 0, k = 0;
  for (; i < a.size() && k < b.size(); ++i, ++k) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      const std::string_view one = digits_at(a, i), other = digits_at(b, k);
      if (one.size() != other.size()) return one.size() < other.size();
      if (one != other) return one < other;
      i = static_cast<std::size_t>(one.end() - a.begin()) - 1;
      k = static_cast<std::size_t>(other.end() - b.begin()) - 1;
    } else if (a[i] != b[k]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
    }
  }
  if (i < a.size() || k < b.size()) return k < b.size();
  return a.size() != b.size() ? a.size() < b.size() : a < b;  // by leading zeros
}

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

namespace {

constexpr std::size_t kAny = std::string_view::npos;

/// Which characters are kept that could otherwise deceive, and after how many bytes to cut.
struct Escapes {
  bool backslash = true;  ///< keep the backslash of "\x"
  bool lines = false, colours = false;
  std::size_t longest = kAny;
};

/// The length of the escape sequence of a colour at the start of the text; 0 if there is none.
std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : 0;
}

std::string escaped(std::string_view text, const Escapes& keep) {
  const auto is_plain = [&](char c) {
    return (c >= 0x20 && c < 0x7F && (c != '\\' || keep.backslash)) || (c == '\n' && keep.lines);
  };
  if (text.size() <= keep.longest && std::all_of(text.begin(), text.end(), is_plain))
    return std::string(text);
  std::string out;
  std::size_t grapheme_end = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (keep.longest == kAny) {
      const auto plain = std::find_if_not(text.begin() + i, text.end(), is_plain);
      out.append(text.begin() + i, plain);
      i = static_cast<std::size_t>(plain - text.begin());
      if (i == text.size()) break;
    }
    if (i >= grapheme_end) {
      if (out.size() >= keep.longest) return out + "...";
      grapheme_end = i + grapheme_length(text, i);
    }
    const std::size_t length = utf8_length(text, i);
    const std::size_t colour = keep.colours ? colour_length(text.substr(i)) : 0;
    const bool is_escape = !keep.backslash && text.substr(i, 2) == "\\x";
    const bool is_hidden =
        colour == 0 && is_invisible(code_point(text, i)) && !joins_emoji(text, i, grapheme_end);
    const std::size_t end = i + std::max({colour, length, std::size_t{1}});
    if (length == 0 || is_escape || is_hidden) {
      for (; i < end; ++i) append_hex(out += "\\x", static_cast<std::uint8_t>(text[i]));
    } else {
      out.append(text, i, end - i);
      i = end;
    }
  }
  return out;
}

}  // namespace

std::string printable(const std::string& text) {
  constexpr std::size_t kMaxNameLength = 200;  // a file can hold names of 64 KiB
  return escaped(text, {.backslash = false, .longest = kMaxNameLength});
}

std::string printable_message(const std::string& text) {
  constexpr std::size_t kMaxMessageLength = 4000;
  return escaped(text, {.longest = kMaxMessageLength});
}

std::string printable_lines(std::string_view text, bool colours) {
  return escaped(text, {.lines = true, .colours = colours});
}

}  // namespace attn
