// A source of numbered items, for tests of code that processes items.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "attn/batch/item.h"

/// `count` items, of which the first `at_hand` are available at once.
class Items final : public attn::ItemSource {
 public:
  explicit Items(std::size_t count, std::size_t at_hand = 0) : count_(count), at_hand_(at_hand) {}
  std::optional<attn::Item> next() override {
    if (given_ == count_) return std::nullopt;
    return attn::Item{++given_, "item", ""};
  }
  std::optional<std::size_t> count() const override { return count_; }
  bool has_more() const override { return given_ < at_hand_; }

 private:
  const std::size_t count_, at_hand_;
  std::atomic<std::size_t> given_ = 0;  // any thread may call has_more()
};
