// What has become of items, as long as nobody has been told.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/batch/item.h"

namespace attn {

/// Not thread-safe. Items have places, from 0 on; in order, each waits for those before it.
class FinishedItems {
 public:
  explicit FinishedItems(bool in_order) : in_order_(in_order) {
    spare_.reserve(kMostSpare);
    spare_texts_.reserve(kMostSpare);
  }

  void add(std::size_t place, Outcome outcome) {
    const std::size_t at = in_order_ ? place - taken_ : waiting_.size(), size = outcome.text.size();
    if (spare_.empty()) spare_.push_back(std::make_unique<Outcome>());
    if (waiting_.size() <= at) waiting_.resize(at + 1);  // and nothing fails from here on
    *spare_.back() = std::move(outcome);
    waiting_[at] = std::move(spare_.back());
    spare_.pop_back();
    ++count_;
    bytes_ += size;
  }

  /// All that can be told now. Their texts still count as bytes() until forget().
  std::vector<Outcome> take() {
    const auto told = std::find(waiting_.begin(), waiting_.end(), nullptr);
    std::vector<Outcome> ready;
    ready.reserve(static_cast<std::size_t>(told - waiting_.begin()));  // where that fails, all stay
    for (; !waiting_.empty() && waiting_.front() != nullptr; waiting_.pop_front()) {
      ready.push_back(std::move(*waiting_.front()));
      if (spare_.size() < kMostSpare) spare_.push_back(std::move(waiting_.front()));
      ++taken_;
      --count_;
    }
    return ready;
  }

  /// Keeps their texts' memory.
  void forget(std::vector<Outcome>& told) {
    for (Outcome& outcome : told) {
      bytes_ -= outcome.text.size();
      if (outcome.text.capacity() <= kSmallText && spare_texts_.size() < kMostSpare)
        spare_texts_.push_back(std::move(outcome.text));
    }
  }

  /// Room for a text, in which another has been.
  std::string spare_text() {
    if (spare_texts_.empty()) return {};
    std::string text = std::move(spare_texts_.back());
    spare_texts_.pop_back();
    text.clear();
    return text;
  }

  std::size_t size() const { return count_; }
  std::size_t bytes() const { return bytes_; }  ///< of texts

 private:
  // Memory that one thread takes and another gives back makes both wait for the allocator.
  static constexpr std::size_t kMostSpare = 256, kSmallText = 4096;

  const bool in_order_;
  std::size_t taken_ = 0, count_ = 0, bytes_ = 0;
  std::deque<std::unique_ptr<Outcome>> waiting_;  ///< by place behind those taken, in order
  std::vector<std::unique_ptr<Outcome>> spare_;
  std::vector<std::string> spare_texts_;
};

}  // namespace attn
