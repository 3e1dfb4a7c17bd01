#include "attn/io/checked_text.h"

#include <algorithm>
#include <utility>

#include "attn/base/utf8.h"
#include "attn/io/file.h"

namespace attn {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

}  // namespace

std::string_view without_byte_order_mark(std::string_view text) {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

std::string_view checked_text(std::string_view text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    fail_at({name}, "is UTF-16, expected UTF-8 (save it as UTF-8)");
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail_at({name}, "byte " + std::to_string(nul) + " is NUL, expected text in UTF-8");
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    fail_at({name}, "byte " + std::to_string(bad) + " is not UTF-8");
  text = without_byte_order_mark(text);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) fail_at({name}, "is empty");
  return text;
}

Problem problem_at(std::string_view text, std::size_t offset, std::string message) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto column = std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start),
                                    before.end(), [](char c) { return !is_continuation(c); }) +
                      1;
  return {.line = static_cast<std::size_t>(line),
          .column = static_cast<std::size_t>(column),
          .message = std::move(message)};
}

}  // namespace attn
