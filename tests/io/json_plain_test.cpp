#include "attn/io/json_plain.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "attn/io/json_write.h"

using namespace attn;
using namespace std::string_literals;

namespace {

std::optional<Json> plain_json(std::string_view text) {
  MemoryCharge unlimited(nullptr, "");
  return parse_plain_json(text, unlimited);
}

}  // namespace

TEST_CASE("the plain JSON parser reads all kinds of values") {
  const auto same = [](const std::string& text) {
    const std::optional<Json> json = plain_json(text);
    REQUIRE(json.has_value());
    CHECK(to_json(*json) == text);
  };
  same(R"({"a":[1,-2,9223372036854775807],"b":{"c":null,"d":[]},"e":[true,false],"f":"g"})");
  same("[[1.5,-0.25],[1e+100,5e-324]]");
  same("[18446744073709551615]");
  same("[[],{},\"\"]");
  same(R"(["NaN","Infinity","-Infinity",1.5])");
  same("\"\u00e9 \u4e2d\"");
  CHECK(to_json(*plain_json(" [ 1 ,\t2.0\n, 1E5 ]\r\n")) == "[1.0,2.0,100000.0]");
  CHECK(*plain_json(R"("\"\\\/\b\f\n\r\t")")->get<std::string>() == "\"\\/\b\f\n\r\t");
  CHECK(*plain_json("-0")->get<std::int64_t>() == 0);
  CHECK(std::signbit(*plain_json("-0.0")->get<double>()));
  CHECK(*plain_json("0.1")->get<double>() == 0.1);
}

TEST_CASE("the plain JSON parser leaves invalid and unusual text to the full parser") {
  for (const std::string text : {"",
                                 " ",
                                 "{",
                                 "[",
                                 "[1",
                                 "[1,",
                                 "[1,]",
                                 "[,1]",
                                 "{\"a\"}",
                                 "{\"a\":}",
                                 "{\"a\":1,}",
                                 "{a:1}",
                                 "{\"a\":1 \"b\":2}",
                                 "{\"a\":1,\"a\":2}",
                                 "[1 2]",
                                 "1 2",
                                 "[1]]",
                                 "]",
                                 "}",
                                 "nul",
                                 "tru",
                                 "nulls",
                                 "True",
                                 "NaN",
                                 "Infinity",
                                 "-",
                                 "+1",
                                 "01",
                                 "-01",
                                 "1.",
                                 ".5",
                                 "1e",
                                 "1e+",
                                 "0x1",
                                 "1_0",
                                 "'a'",
                                 "\"a",
                                 "\"\\",
                                 "\"\\x\"",
                                 "\"\\u0041\"",
                                 "\"\\ud800\"",
                                 "1e999",
                                 "-1e999",
                                 "1e-999",
                                 "18446744073709551616",
                                 "-9223372036854775809",
                                 "// a\n1",
                                 "[1]#"}) {
    INFO(text);
    CHECK_FALSE(plain_json(text).has_value());
  }
  CHECK_FALSE(plain_json("\"a\nb\"").has_value());
  CHECK_FALSE(plain_json("[1]\0"s).has_value());
  CHECK_FALSE(plain_json("\0"s).has_value());
}

TEST_CASE("the plain JSON parser has the same depth limit and finds duplicate keys") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(plain_json(nested(72)).has_value());
  CHECK_FALSE(plain_json(nested(73)).has_value());
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  CHECK(plain_json(text + "\"k\":0}").has_value());
  CHECK_FALSE(plain_json(text + "\"k7\":0}").has_value());
  CHECK_FALSE(plain_json(text + "\"k99\":0}").has_value());
}
