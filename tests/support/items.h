// A source of numbered items without contents.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "attn/batch/item.h"

/// `count` items; has_more() is true before the first `available` of them.
class Items final : public attn::ItemSource {
 public:
  explicit Items(std::size_t count, std::size_t available = 0)
      : count_(count), available_(available) {}
  std::optional<attn::Item> next() override {
    if (given_ == count_) return std::nullopt;
    return attn::Item{++given_, "item", ""};
  }
  std::optional<std::size_t> count() const override { return count_; }
  bool has_more() const override { return given_ < available_; }

 private:
  const std::size_t count_, available_;
  std::atomic<std::size_t> given_ = 0;  // has_more() is called by other threads
};
