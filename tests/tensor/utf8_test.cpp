#include "attn/base/utf8.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace attn;

namespace {

/// All code points as UTF-8, by the ranges of its definition.
std::string encoded(std::uint32_t code) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000)
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)),
          byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
}

}  // namespace

TEST_CASE("all code points except surrogates are UTF-8, up to U+10FFFF") {
  std::size_t wrong = 0;
  for (std::uint32_t code = 0; code < 0x110400; ++code) {
    const std::string text = encoded(code);
    const bool legal = code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
    if (utf8_length(text, 0) != (legal ? text.size() : 0)) ++wrong;
    // Text that ends inside a character is not UTF-8.
    if (text.size() > 1 && utf8_length(text.substr(0, text.size() - 1), 0) != 0) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the first invalid byte of UTF-8 is found") {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"", std::string::npos},
      {"plain, é, €, 😀", std::string::npos},
      {"\xFF", 0},
      {"ab\x80", 2},         // a continuation without a start
      {"é\xC3", 2},          // a start without a continuation
      {"a\xC0\xAF", 1},      // '/', overlong
      {"a\xE0\x80\xAF", 1},  // '/', an even longer form
      {"a\xF0\x80\x80\xAF", 1},
      {"a\xED\xA0\x80", 1},      // a surrogate
      {"a\xF4\x90\x80\x80", 1},  // U+110000
      {"a\xF8\x88\x80\x80\x80", 1},
      {"a\xE2\x82z", 1},
  };
  for (const auto& [text, place] : cases) {
    INFO(text);
    CHECK(find_invalid_utf8(text) == place);
  }
}
