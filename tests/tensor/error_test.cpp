#include "attn/base/error.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "attn/base/text.h"

using namespace attn;
using namespace std::string_literals;

TEST_CASE("an error keeps its kind and has a line for each problem") {
  const Error one(ErrorKind::data, "F: T: message");
  CHECK(one.kind() == ErrorKind::data);
  CHECK(one.lines() == std::vector<std::string>{"F: T: message"});
  CHECK(one.what() == "F: T: message"s);
  const Error two(ErrorKind::usage,
                  std::vector<Problem>{{.message = "first"}, {.message = "second"}});
  CHECK(two.lines().size() == 2);
  CHECK(two.what() == "first\nsecond"s);
}

TEST_CASE("a problem's parts have one order") {
  CHECK(to_string({.subject = "W_Q", .expected = "(3, 2)", .found = "(2, 3)"}) ==
        "W_Q: expected (3, 2), found (2, 3)");
  CHECK(to_string({.where = {"job.json", "Q"}, .line = 3, .column = 7, .message = "is empty"}) ==
        "job.json: Q: line 3, column 7: is empty");
  CHECK(to_string({.line = 3, .message = "is blank", .hint = "delete it"}) ==
        "line 3: is blank; delete it");
  CHECK(to_string({.where = {"a"}, .column = 2, .message = "is blank"}) == "a: column 2: is blank");
  CHECK(to_string({.where = {"a\nb"}, .message = "is empty"}) == "a\\x0ab: is empty");
}

TEST_CASE("an error within a place names the place first") {
  const Error inner(ErrorKind::data, Problem{.where = {"Q"}, .message = "is empty"});
  CHECK(inner.within("job.json").lines() == std::vector<std::string>{"job.json: Q: is empty"});
  CHECK_THROWS_WITH(within("a", [] { throw Error(ErrorKind::data, "b"); }), "a: b");
  CHECK(within("a", [] { return 1; }) == 1);
}

TEST_CASE("an error shows ten problems and the number of the others") {
  const auto many = [](std::size_t count) {
    return Error(ErrorKind::data, std::vector<Problem>(count, Problem{.message = "x"}));
  };
  CHECK(many(10).lines().size() == 10);
  CHECK(many(10).lines().back() == "x");
  CHECK(many(11).lines().back() == "and 1 more error");
  CHECK(many(200'000).lines().size() == 11);
  CHECK(many(200'000).lines()[9] == "x");
  CHECK(many(200'000).lines()[10] == "and 199990 more errors");
  CHECK(many(200'000).within("f").lines()[10] == "and 199990 more errors");
}

TEST_CASE("a problem list keeps the first ten problems") {
  ProblemList problems;
  CHECK(problems.empty());
  for (int i = 0; i < 12; ++i) {
    CHECK(problems.keeps_next() == (i < 10));
    problems.add({.message = std::to_string(i)});
  }
  CHECK(problems.kept().back().message == "9");
  try {
    problems.raise(ErrorKind::usage);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(error.lines().back() == "and 2 more errors");
  }
}

TEST_CASE("kinds are the exit codes of the command line") {
  const auto code = [](ErrorKind kind) { return static_cast<int>(kind); };
  CHECK(code(ErrorKind::usage) == 2);
  CHECK(code(ErrorKind::data) == 65);
  CHECK(code(ErrorKind::no_input) == 66);
  CHECK(code(ErrorKind::internal) == 70);
  CHECK(code(ErrorKind::cannot_create) == 73);
  CHECK(code(ErrorKind::io) == 74);
  CHECK(code(ErrorKind::busy) == 75);
  CHECK(code(ErrorKind::permission) == 77);
}

TEST_CASE("printable text cannot move the cursor, forge a line or flood the screen") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"W_Q", "W_Q"},
      {"é€😀", "é€😀"},
      {"a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"},
      {"\x1B[31mred\x7F", "\\x1b[31mred\\x7f"},
      {"a\0b"s, "a\\x00b"},
      {"bad \xFF\xC3", "bad \\xff\\xc3"},
      {"\u202Egpj", "\\xe2\\x80\\xaegpj"},  // right-to-left override
      {"\u009B31m", "\\xc2\\x9b31m"},       // a control sequence in one character
      {"back\\slash", "back\\slash"},
  };
  for (const auto& [text, shown] : cases) CHECK(printable(text) == shown);
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(100'000, 'x')) == std::string(200, 'x') + "...");
}
