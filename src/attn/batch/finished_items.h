// What has become of items, as long as nobody has been told.
#pragma once

#include <cstddef>
#include <map>
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
    bytes_ += outcome.text.size();
    waiting_.emplace(place, std::move(outcome));
  }

  /// All that can be told now. Their texts still count as bytes() until forget().
  std::vector<Outcome> take() {
    std::vector<Outcome> ready;
    while (!waiting_.empty() && (!in_order_ || waiting_.begin()->first == taken_)) {
      ready.push_back(std::move(waiting_.begin()->second));
      waiting_.erase(waiting_.begin());
      ++taken_;
    }
    return ready;
  }

  void forget(std::span<const Outcome> told) {
    for (const Outcome& outcome : told) bytes_ -= outcome.text.size();
  }

  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  std::size_t bytes() const { return bytes_; }  ///< of texts

 private:
  const bool in_order_;
  std::size_t taken_ = 0, bytes_ = 0;
  std::map<std::size_t, Outcome> waiting_;  ///< by place
};

}  // namespace attn
