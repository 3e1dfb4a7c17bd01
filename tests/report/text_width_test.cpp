#include "attn/base/text_width.h"

#include <catch2/catch.hpp>

using namespace attn;

TEST_CASE("text has the width that terminals give it", "[text_width]") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("cat") == 3);
  CHECK(columns_of("größe") == 5);
  CHECK(columns_of("猫が") == 4);
  CHECK(columns_of("e\u0301a") == 2);  // e with a combining accent
  CHECK(columns_of("😀") == 2);
}

TEST_CASE("combining accents stay with their characters", "[text_width]") {
  const auto characters = characters_of("e\u0301猫x");
  REQUIRE(characters.size() == 3);
  CHECK(characters[0] == "e\u0301");
  CHECK(characters[1] == "猫");
}

TEST_CASE("truncated text ends with a mark", "[text_width]") {
  CHECK(cut("cat", 3) == "cat");
  CHECK(cut("neighbour", 5) == "neig…");
  CHECK(cut("猫猫猫", 4) == "猫…");  // three columns: a fourth would be half a character
  CHECK(cut("cat", 1) == "…");
  CHECK(cut("cat", 0).empty());
}
