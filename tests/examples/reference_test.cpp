#include <catch2/catch.hpp>

#include "attn/base/error.h"
#include "attn/examples/value.h"

using namespace attn;

TEST_CASE("a reference has a result, a value and accesses") {
  const Reference plain = parse_reference("first.scores", "here");
  CHECK(plain.text == "first.scores");
  CHECK(plain.result == "first");
  CHECK(plain.value == "scores");
  CHECK(plain.accesses.empty());

  const Reference rich = parse_reference("a.W_Q_heads[12][0].T.joined.shape", "here");
  REQUIRE(rich.accesses.size() == 5);
  CHECK(rich.value == "W_Q_heads");
  CHECK(rich.accesses[0].kind == Access::Kind::index);
  CHECK(rich.accesses[0].index == 12);
  CHECK(rich.accesses[1].index == 0);
  CHECK(rich.accesses[2].kind == Access::Kind::transpose);
  CHECK(rich.accesses[3].kind == Access::Kind::joined);
  CHECK(rich.accesses[4].kind == Access::Kind::shape);
}

TEST_CASE("invalid references are refused; the error names their location") {
  const std::string text = GENERATE("", "first", "first.", ".scores", "first.scores[", "a.b[]",
                                    "a.b[-1]", "a.b[1", "a.b[1]x", "a.b[1.5]", "a.b.U", "a.b.",
                                    "a.b[99999999999999999999999]", "a.b.T ", "a.[0]");
  CAPTURE(text);
  CHECK_THROWS_WITH(parse_reference(text, "cells[2]"),
                    Catch::StartsWith("cells[2]: expected RESULT.VALUE") &&
                        Catch::EndsWith("found '" + text + "'"));
}
