// A shard, as what takes its items sees it.
#include "attn/batch/shard.h"

#include <catch2/catch.hpp>

using namespace attn;

namespace {

/// Ten items, of which the first `at_hand` need not be waited for.
class Items final : public ItemSource {
 public:
  explicit Items(std::size_t at_hand) : at_hand_(at_hand) {}
  std::optional<Item> next() override {
    return given_ == 10 ? std::nullopt : std::optional(Item{++given_, "item", ""});
  }
  std::optional<std::size_t> count() const override { return 10; }
  bool has_more() const override { return given_ < at_hand_; }

 private:
  const std::size_t at_hand_;
  std::size_t given_ = 0;
};

}  // namespace

TEST_CASE("a shard has more at hand as long as the whole has") {
  const auto shard = shard_of(std::make_unique<Items>(4), {.index = 2, .count = 3});
  CHECK(shard->count() == 3);
  CHECK(shard->has_more());
  CHECK(shard->next()->number == 2);
  CHECK(shard->has_more());
  CHECK(shard->next()->number == 5);
  CHECK(!shard->has_more());
  CHECK(shard->next()->number == 8);
  CHECK(!shard->next());
}
