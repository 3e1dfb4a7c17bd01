#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "attn/base/text.h"

using namespace attn;

TEST_CASE("each name, of any bytes, has a unique text and is found by it") {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"jobs/a.json", "jobs/a.json"},
      {"\xC3\xA4", "\xC3\xA4"},
      {"a\xFF", "a\\xff"},
      {"a\\xff", "a\\x5cxff"},
      {"a\\y\\", "a\\y\\"},
      {"\\\\x", "\\\\x5cx"},
      {"\xC3", "\\xc3"},
  };
  std::set<std::string> texts;
  for (const auto& [name, text] : names) {
    CHECK(text_of_name(name) == text);
    CHECK(name_of_text(text) == name);
    CHECK(texts.insert(text).second);
  }
}
