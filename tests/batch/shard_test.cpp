#include "attn/batch/shard.h"

#include <catch2/catch.hpp>

#include "support/items.h"

using namespace attn;

TEST_CASE("has_more() of a shard is that of the whole batch") {
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
