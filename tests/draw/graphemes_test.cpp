#include <catch2/catch.hpp>

#include "attn/base/utf8.h"

using namespace attn;

TEST_CASE("text width counts terminal columns", "[graphemes]") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("cat") == 3);
  CHECK(columns_of("größe") == 5);
  CHECK(columns_of("猫が") == 4);
  CHECK(columns_of("e\u0301a") == 2);  // e with a combining accent
  CHECK(columns_of("😀") == 2);
  CHECK(columns_of("👨‍👩‍👧") == 2);  // joined
  CHECK(columns_of("🇫🇷") == 2);                  // two regional indicators
  CHECK(columns_of("❤️") == 2);              // emoji style
  CHECK(columns_of("นี้") == 1);                   // marks above
}

TEST_CASE("grapheme clusters are not split", "[graphemes]") {
  const auto graphemes = graphemes_of("e\u0301猫x");
  REQUIRE(graphemes.size() == 3);
  CHECK(graphemes[0] == "e\u0301");
  CHECK(graphemes[1] == "猫");
  CHECK(graphemes_of("👨‍👩‍👧🇫🇷").size() == 2);
  CHECK(graphemes_of("\xFF\xFE").size() == 2);
  const std::string long_cluster = "a" + std::string(1000, '\xCC');
  CHECK(graphemes_of(long_cluster).size() == 1001);
}

TEST_CASE("shortened text ends with an ellipsis", "[graphemes]") {
  CHECK(cut_to_columns("cat", 3) == "cat");
  CHECK(cut_to_columns("neighbour", 5) == "neig…");
  CHECK(cut_to_columns("猫猫猫", 4) == "猫…");  // three columns: a fourth would be half a character
  CHECK(cut_to_columns("cat", 1) == "…");
  CHECK(cut_to_columns("cat", 0).empty());
  CHECK(cut_to_columns("e\u0301e\u0301e\u0301", 2) == "e\u0301…");
}

TEST_CASE("control and format characters are invisible") {
  for (const char* text : {"\u0085", "\u009B", "\u061C", "\u200B", "\u200F", "\u2028", "\u202E",
                           "\u2060", "\u2066", "\u2069", "\uFEFF", "\n", "\u00AD", "\U000E0041"}) {
    INFO(text);
    CHECK(is_invisible(code_point(text, 0)));
  }
  for (const char* text : {"\u00A0", "é", "\u2010", "\u2030", "\u2070", "€", "😀"}) {
    INFO(text);
    CHECK_FALSE(is_invisible(code_point(text, 0)));
  }
}
