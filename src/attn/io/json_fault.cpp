#include "attn/io/json_fault.h"

#include <algorithm>

#include "attn/base/printable.h"
#include "attn/io/checked_text.h"

namespace attn {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

/// The word or number at `at`, or one of ,:[]{}".
std::string_view word_at(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_of(" \t\r\n,:[]{}\"", at);
  return text.substr(at, end == at ? 1 : end - at);
}

/// `word` in quotes; a long word is replaced by its start and its size.
std::string quoted_word(std::string_view word) {
  constexpr std::size_t kLongest = 40;
  const bool whole = word.size() <= kLongest;
  std::string text = "'";
  text += printable(std::string(word.substr(0, whole ? kLongest : kLongest / 2)));
  text += whole ? "'" : "...' (" + std::to_string(word.size()) + " bytes)";
  return text;
}

std::string found_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return "the end of the file";
  if (text[at] == '"') return "a string";
  return quoted_word(word_at(text, at));
}

/// Hints for common mistakes, which other languages allow.
std::string remedy(std::string_view text, std::size_t at, bool after_comma) {
  if (at >= text.size()) return "";
  const std::string_view word = word_at(text, at);
  if (word == "NaN" || word == "nan") return " (write \"NaN\", in double quotes)";
  if (word == "Infinity" || word == "inf") return " (write \"Infinity\", in double quotes)";
  if (word == "-Infinity" || word == "-inf") return " (write \"-Infinity\", in double quotes)";
  if (word[0] == '\'') return " (strings need double quotes)";
  if (word[0] == '/' || word[0] == '#') return " (JSON has no comments)";
  if (after_comma && (word[0] == ']' || word[0] == '}')) return " (one comma too many)";
  return "";
}

bool starts_number(char c) { return c == '-' || (c >= '0' && c <= '9'); }

/// An invalid string that starts at `start`.
Problem explain_string(const JsonFault& fault, std::size_t start) {
  const std::size_t last = fault.read - 1;  // the first invalid character
  if (last >= fault.text.size())
    return problem_at(fault.text, start, "the string that starts here has no end");
  if (static_cast<unsigned char>(fault.text[last]) < 0x20)
    return problem_at(fault.text, last,
                      "a line break or control character inside a string (write \\n or \\u00XX)");
  return problem_at(fault.text, last,
                    "expected an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX (a "
                    "surrogate only in a pair), found " +
                        quoted_word(fault.text.substr(last, 1)));
}

struct Expectation {
  std::string what;
  std::size_t at;  ///< where it was expected
  bool after_comma = false;
};

/// What may follow, after the ',' or ':' if there is one.
Expectation expectation(const JsonFault& fault) {
  const std::size_t at = skip_space(fault.text, fault.good);
  const char next = at < fault.text.size() ? fault.text[at] : '\0';
  const std::size_t beyond = skip_space(fault.text, at + 1);
  switch (fault.place) {
    case JsonPlace::start:
      return {"a value", at};
    case JsonPlace::end:
      return {"the end of the document", at};
    case JsonPlace::array_start:
      return {"a value or ']'", at};
    case JsonPlace::array_value:
      return next == ',' ? Expectation{"a value", beyond, true} : Expectation{"',' or ']'", at};
    case JsonPlace::object_start:
      return {"a key in double quotes or '}'", at};
    case JsonPlace::object_key:
      return next == ':' ? Expectation{"a value", beyond} : Expectation{"':'", at};
    case JsonPlace::object_value:
      break;
  }
  return next == ',' ? Expectation{"a key in double quotes", beyond, true}
                     : Expectation{"',' or '}'", at};
}

}  // namespace

Problem explain(const JsonFault& fault) {
  const std::string_view text = fault.text;
  const auto [what, at, after_comma] = expectation(fault);
  const bool inside = at < text.size();
  const bool value = what.starts_with("a value");
  if (inside && text[at] == '"' && (value || what.starts_with("a key")))
    return explain_string(fault, at);
  if (inside && at > 0 && text[at - 1] == '0' && text[at] >= '0' && text[at] <= '9')
    return problem_at(text, at, "expected a number without leading zeros");
  const std::string wanted = inside && value && starts_number(text[at]) ? "a number" : what;
  return problem_at(
      text, at,
      "expected " + wanted + ", found " + found_at(text, at) + remedy(text, at, after_comma));
}

Problem explain_overflow(std::string_view text, std::size_t at) {
  const std::string_view word = word_at(text, at);
  const bool integer = word.find_first_of(".eE") == std::string_view::npos;
  return problem_at(text, at,
                    std::string("expected a number that fits ") +
                        (integer ? "64 bits" : "a float64") + ", found " + quoted_word(word) +
                        (integer ? " (write it with a '.' for a float)" : ""));
}

}  // namespace attn
