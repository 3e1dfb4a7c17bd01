// What has become of items, as long as nobody has been told.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attn/batch/item.h"

namespace attn {

/// Not thread-safe. Items have places, from 0 on; in order, each waits for those before it.
class FinishedItems {
 public:
  explicit FinishedItems(bool in_order) : in_order_(in_order) {}

  void add(std::size_t place, Outcome outcome) {
    const std::size_t at = in_order_ ? place - taken_ : waiting_.size(), size = outcome.text.size();
    auto held = std::make_unique<Outcome>(std::move(outcome));
    if (waiting_.size() <= at) waiting_.resize(at + 1);
    waiting_[at] = std::move(held);
    ++count_;
    bytes_ += size;
  }

  /// All that can be told now. Their texts still count as bytes() until forget().
  std::vector<Outcome> take() {
    std::vector<Outcome> ready;
    for (; !waiting_.empty() && waiting_.front() != nullptr; waiting_.pop_front()) {
      ready.push_back(std::move(*waiting_.front()));
      ++taken_;
      --count_;
    }
    return ready;
  }

  void forget(std::span<const Outcome> told) {
    for (const Outcome& outcome : told) bytes_ -= outcome.text.size();
  }

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return bytes_; }  ///< of texts

 private:
  const bool in_order_;
  std::size_t taken_ = 0, count_ = 0, bytes_ = 0;
  std::deque<std::unique_ptr<Outcome>> waiting_;  ///< by place behind those taken, in order
};

}  // namespace attn
