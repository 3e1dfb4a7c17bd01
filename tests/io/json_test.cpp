#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "attn/base/error.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/tensor/rearrange.h"

using namespace attn;
using namespace std::string_literals;

namespace {

/// The message of parse_json for invalid text; "" if the text is valid.
std::string complaint_about_json(const std::string& text) {
  try {
    parse_json(text, "F");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    CHECK(error.lines().size() == 1);
    return error.what();
  }
  return "";
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

struct Malformed {
  std::string text, complaint;
};

}  // namespace

TEST_CASE("invalid JSON is refused with the line, the column, and what was expected and found") {
  const std::vector<Malformed> cases = {
      {"", "is empty"},
      {" \n\t", "is empty"},
      {"\xEF\xBB\xBF", "is empty"},
      {"[1,\n2,\n ,3]", "line 3, column 2: expected a value, found ','"},
      {"[1,]", "line 1, column 4: expected a value, found ']' (one comma too many)"},
      {"[,1]", "line 1, column 2: expected a value or ']', found ','"},
      {"{\"a\":1,}",
       "line 1, column 8: expected a key in double quotes, found '}' (one comma too many)"},
      {"[1", "line 1, column 3: expected ',' or ']', found the end of the file"},
      {"[1,", "line 1, column 4: expected a value, found the end of the file"},
      {"{", "line 1, column 2: expected a key in double quotes or '}', found the end of the file"},
      {"{\"a\"", "line 1, column 5: expected ':', found the end of the file"},
      {"{\"a\":", "line 1, column 6: expected a value, found the end of the file"},
      {"{\"a\":1", "line 1, column 7: expected ',' or '}', found the end of the file"},
      {"{\"a\" 1}", "line 1, column 6: expected ':', found '1'"},
      {"{\"a\":1 \"b\":2}", "line 1, column 8: expected ',' or '}', found a string"},
      {"{1:2}", "line 1, column 2: expected a key in double quotes or '}', found '1'"},
      {"[1 2]", "line 1, column 4: expected ',' or ']', found '2'"},
      {"[1}", "line 1, column 3: expected ',' or ']', found '}'"},
      {"]", "line 1, column 1: expected a value, found ']'"},
      {"[1] [2]", "line 1, column 5: expected the end of the document, found '['"},
      {"[1]\n{}", "line 2, column 1: expected the end of the document, found '{'"},
      {"1 x", "line 1, column 3: expected the end of the document, found 'x'"},
      {"[1] // one",
       "line 1, column 5: expected the end of the document, found '//' (JSON has no comments)"},
      {"[/**/1]",
       "line 1, column 2: expected a value or ']', found '/**/1' (JSON has no comments)"},
      {"['a']",
       "line 1, column 2: expected a value or ']', found ''a'' (strings need double quotes)"},
      {"[NaN]",
       "line 1, column 2: expected a value or ']', found 'NaN' (write \"NaN\", in double quotes)"},
      {"[1, Infinity]",
       "line 1, column 5: expected a value, found 'Infinity' (write \"Infinity\", in double "
       "quotes)"},
      {"[-Infinity]",
       "line 1, column 2: expected a number, found '-Infinity' (write \"-Infinity\", in double "
       "quotes)"},
      {"[nul]", "line 1, column 2: expected a value or ']', found 'nul'"},
      {"[True]", "line 1, column 2: expected a value or ']', found 'True'"},
      {"[01]", "line 1, column 3: expected a number without leading zeros"},
      {"[1.]", "line 1, column 2: expected a number, found '1.'"},
      {"[1e]", "line 1, column 2: expected a number, found '1e'"},
      {"[-]", "line 1, column 2: expected a number, found '-'"},
      {"[+1]", "line 1, column 2: expected a value or ']', found '+1'"},
      {"[.5]", "line 1, column 2: expected a value or ']', found '.5'"},
      {"[0x10]", "line 1, column 3: expected ',' or ']', found 'x10'"},
      {"\"abc", "line 1, column 1: the string that starts here is not closed"},
      {"[\"a\nb\"]",
       "line 1, column 4: a line break or control character inside a string (write \\n or "
       "\\u00XX)"},
      {"\"\\x\"",
       "line 1, column 3: expected an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX (a "
       "surrogate only in a pair), found 'x'"},
      {"\"\\ud800\"",
       "line 1, column 8: expected an escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX (a "
       "surrogate only in a pair), found '\"'"},
      {"{\"a\":1,\n \"b\":2,\n \"a\":3}", "line 3, column 2: the key 'a' occurs twice"},
      {"{\"a\":1,\"\\u0061\":3}", "line 1, column 8: the key 'a' occurs twice"},
      {"[1e999]", "line 1, column 2: expected a number that fits a float64, found '1e999'"},
      {"[-1e999]", "line 1, column 2: expected a number that fits a float64, found '-1e999'"},
      {"[1, 18446744073709551616]",
       "line 1, column 5: expected a number that fits 64 bits, found '18446744073709551616' (write "
       "it with a '.' for a float)"},
      {"-9223372036854775809",
       "line 1, column 1: expected a number that fits 64 bits, found '-9223372036854775809' (write "
       "it with a '.' for a float)"},
      {"[1]\0x"s, "byte 3 is NUL, expected text in UTF-8"},
      {"[\"a\0\"]"s, "byte 3 is NUL, expected text in UTF-8"},
      {"\xFF\xFE[\0"s, "is UTF-16, expected UTF-8 (save it as UTF-8)"},
      {"\xFE\xFF\0["s, "is UTF-16, expected UTF-8 (save it as UTF-8)"},
      {"[\"a\xFF\"]", "byte 3 is not UTF-8"},
      {"[\"\xC0\xAF\"]", "byte 2 is not UTF-8"},
      {"[\"\xED\xA0\x80\"]", "byte 2 is not UTF-8"},
      {"[\"é\", x]", "line 1, column 7: expected a value, found 'x'"},
      {"\xEF\xBB\xBF[x]", "line 1, column 2: expected a value or ']', found 'x'"},
      {"[\x1B[31m]", "line 1, column 2: expected a value or ']', found '\\x1b'"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(complaint_about_json(text) == "F: " + expected);
  }
}

TEST_CASE("nesting is limited to 72 levels") {
  CHECK(complaint_about_json(repeated("[", 72) + repeated("]", 72)) == "");
  CHECK(complaint_about_json(repeated("{\"a\":", 72) + "1" + repeated("}", 72)) == "");
  const std::string deeper = "F: line 1, column 73: nested deeper than 72 levels";
  CHECK(complaint_about_json(repeated("[", 73) + repeated("]", 73)) == deeper);
  CHECK(complaint_about_json(repeated("[", 1'000'000)) == deeper);
  CHECK(complaint_about_json(repeated("[", 1'000'000) + repeated("]", 1'000'000)) == deeper);
  CHECK(complaint_about_json(repeated("{\"a\":", 100'000)) ==
        "F: line 1, column 361: nested deeper than 72 levels");
}

TEST_CASE("a number of a million digits is read or refused, and not quoted in the message") {
  const std::string digits = repeated("3", 1'000'000);
  CHECK(*parse_json("0." + digits, "F").get<double>() == 1.0 / 3);
  CHECK(complaint_about_json(digits) ==
        "F: line 1, column 1: expected a number that fits 64 bits, found '33333333333333333333...' "
        "(1000000 bytes) (write it with a '.' for a float)");
}

TEST_CASE("integers are exact, and floats are rounded once") {
  CHECK(*parse_json("9007199254740993", "F").get<std::int64_t>() == 9007199254740993);
  CHECK(*parse_json("9223372036854775807", "F").get<std::int64_t>() == INT64_MAX);
  CHECK(*parse_json("-9223372036854775808", "F").get<std::int64_t>() == INT64_MIN);
  CHECK(*parse_json("9223372036854775808", "F").get<std::uint64_t>() == 9223372036854775808u);
  CHECK(*parse_json("18446744073709551615", "F").get<std::uint64_t>() == UINT64_MAX);
  CHECK(*parse_json("1e-999", "F").get<double>() == 0);
  CHECK(*parse_json("1e-2147483648", "F").get<double>() == 0);
  CHECK(*parse_json("5e-324", "F").get<double>() == std::numeric_limits<double>::denorm_min());
  CHECK(std::signbit(*parse_json("-0.0", "F").get<double>()));
  // Halfway between two doubles, a little above it, and the largest that does not overflow.
  CHECK(*parse_json("9007199254740993.0", "F").get<double>() == 9007199254740992.0);
  CHECK(*parse_json("9007199254740993.0000000000000000000000000000001", "F").get<double>() ==
        9007199254740994.0);
  CHECK(*parse_json("1.7976931348623158e308", "F").get<double>() ==
        std::numeric_limits<double>::max());
}

TEST_CASE("documents keep the order of keys and the characters of strings") {
  const Json json = parse_json(
      "\xEF\xBB\xBF {\"b\": [true, null, \"\\u00e9\\ud83d\\ude00\"],\r\n\"a\": {}, \"\": 1.5}\n",
      "F");
  const auto object = json.get<JsonObject>();
  REQUIRE(object);
  REQUIRE(object->size() == 3);
  CHECK((*object)[0].first == "b");
  CHECK((*object)[1].first == "a");
  const auto array = json.find("b")->get<JsonArray>();
  REQUIRE(array);
  CHECK(*(*array)[0].get<bool>());
  CHECK((*array)[1].get<std::nullptr_t>());
  CHECK(*(*array)[2].get<std::string>() == "é😀");
  CHECK(json.find("a")->get<JsonObject>()->empty());
  CHECK(*json.find("")->get<double>() == 1.5);
  CHECK(json.find("c") == nullptr);
  CHECK_THROWS_WITH(*json.find("a")->get<std::string>(), "expected a string, found an object");
  CHECK_THROWS_WITH(json.find("b")->get<JsonObject>()->empty(),
                    "expected an object, found an array");
  CHECK(parse_json("[1]", "F").find("b") == nullptr);
}

TEST_CASE("arrays of numbers are stored compactly, whatever number is first") {
  const auto parsed = [](const std::string& text) { return parse_json(text, "F"); };
  const auto floats = [&](const std::string& text) {
    const Json json = parsed(text);
    REQUIRE(json.get<JsonFloats>());
    return *json.get<JsonFloats>();
  };
  CHECK(*parsed("[3, -1, 2]").get<JsonIntegers>() == JsonIntegers{3, -1, 2});
  CHECK(floats("[3.5, -1]") == JsonFloats{3.5, -1});
  CHECK(floats("[3, -1, 0.5, 7]") == JsonFloats{3, -1, 0.5, 7});
  CHECK(floats("[0.5, 18446744073709551615]") == JsonFloats{0.5, 18446744073709551615.0});
  CHECK(floats("[1, \"Infinity\"]") == JsonFloats{1, INFINITY});
  CHECK(floats("[\"-Infinity\", \"Infinity\", 2]") == JsonFloats{-INFINITY, INFINITY, 2});
  CHECK(std::isnan(floats("[0.5, \"NaN\"]")[1]));

  CHECK(parsed("[]").get<JsonArray>());
  CHECK(parsed("[18446744073709551615, 1]").get<JsonArray>()->size() == 2);
  CHECK(*parsed("[\"NaN\", \"Infinity\"]").get<JsonArray>()->at(1).get<std::string>() ==
        "Infinity");
  CHECK(*parsed("[\"NaN\", \"of\", 3]").get<JsonArray>()->at(0).get<std::string>() == "NaN");
  CHECK(*parsed("[7, \"of\", 3]").get<JsonArray>()->at(0).get<std::int64_t>() == 7);
  CHECK(*parsed("[7.5, null]").get<JsonArray>()->at(0).get<double>() == 7.5);
  CHECK(parsed("[[1], 2, 3.5]").get<JsonArray>()->size() == 3);
}

TEST_CASE("values have a type name and is_number()") {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"null", "null"},    {"true", "a boolean"}, {"1", "an integer"},
      {"1.0", "a float"},  {"\"1\"", "a string"}, {"18446744073709551615", "an integer"},
      {"[]", "an array"},  {"[1]", "an array"},   {"[0.5]", "an array"},
      {"{}", "an object"},
  };
  for (const auto& [text, kind] : kinds) CHECK(parse_json(text, "F").kind() == kind);
  double number = 0;
  CHECK(parse_json("\"-Infinity\"", "F").as_number(number));
  CHECK(number == -INFINITY);
  CHECK(parse_json("7", "F").as_number(number));
  CHECK(number == 7);
  CHECK_FALSE(parse_json("\"inf\"", "F").as_number(number));
  CHECK_FALSE(parse_json("true", "F").as_number(number));
}

TEST_CASE("a duplicate is found among many keys", "[long]") {
  std::string text = "{\"k0\":0";
  for (int i = 1; i < 200'000; ++i) text += ",\"k" + std::to_string(i) + "\":1";
  CHECK(parse_json(text + "}", "F").get<JsonObject>()->size() == 200'000);
  CHECK(complaint_about_json(text + ",\"k77777\":1}").ends_with("the key 'k77777' occurs twice"));
}

TEST_CASE("indented documents have a line for each member and for each list of scalars") {
  const Json json =
      parse_json(R"({"a": [1, 2], "b": {"c": "x", "d": []}, "e": [{"f": null}]})", "j");
  CHECK(to_json(json) == R"({"a":[1,2],"b":{"c":"x","d":[]},"e":[{"f":null}]})");
  CHECK(to_json(json, 0) == R"({
  "a": [1, 2],
  "b": {
    "c": "x",
    "d": []
  },
  "e": [
    {
      "f": null
    }
  ]
})");
}
