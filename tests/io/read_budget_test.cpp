#include "attn/io/read_budget.h"

#include <catch2/catch.hpp>

#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"

using namespace attn;

TEST_CASE("a read budget refuses what exceeds it and names the file", "[read_budget]") {
  ReadBudget budget(100);
  budget.charge(60, "a.json");
  CHECK(budget.left() == 40);
  CHECK_THROWS_WITH(
      budget.charge(41, "b.json"),
      "b.json: takes more than 100 bytes of memory to read; --max-memory raises the limit");
  CHECK(budget.left() == 40);
}

TEST_CASE("a memory charge is released unless it is kept", "[read_budget]") {
  ReadBudget budget(100);
  { MemoryCharge(&budget, "a").add(10); }
  CHECK(budget.left() == 100);
  {
    MemoryCharge charge(&budget, "a");
    charge.add(10);
    charge.release_to(4);
    charge.keep();
  }
  CHECK(budget.left() == 96);
}

TEST_CASE("sizes beyond 64 bits are refused", "[read_budget]") {
  ReadBudget budget(100);
  MemoryCharge charge(&budget, "a");
  CHECK_THROWS_AS(charge.add(std::size_t{1} << 40, std::size_t{1} << 40), Error);
}

TEST_CASE("both JSON readers charge the memory of the value", "[read_budget]") {
  const std::string plain = "[[1],[2],[3],\"a string that is not stored inline\"]";
  const std::string unusual = "[[1],[2],[3],\"a string that is not stored inl\\u0069ne\"]";
  for (const std::string& text : {plain, unusual}) {
    ReadBudget enough(10'000), little(300);
    MemoryCharge charge(&enough, "a"), too_much(&little, "a");
    parse_json(text, "a", charge);
    CHECK(charge.bytes() > 400);
    CHECK_THROWS_AS(parse_json(text, "a", too_much), Error);
  }
}
