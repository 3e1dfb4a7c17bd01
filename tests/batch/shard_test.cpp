// A shard, as what takes its items sees it.
#include "attn/batch/shard.h"

#include <catch2/catch.hpp>

#include "support/items.h"

using namespace attn;

TEST_CASE("a shard has more at hand as long as the whole has") {
  const auto shard = shard_of(std::make_unique<Items>(10, 4), {.index = 2, .count = 3});
  CHECK(shard->count() == 3);
  CHECK(shard->has_more());
  CHECK(shard->next()->number == 2);
  CHECK(shard->has_more());
  CHECK(shard->next()->number == 5);
  CHECK(!shard->has_more());
  CHECK(shard->next()->number == 8);
  CHECK(!shard->next());
}
