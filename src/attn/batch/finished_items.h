// The outcomes of a batch that have not been reported yet.
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

/// A queue of outcomes, each with a sequence number from 0. With `in_order`, an outcome is reported
/// only after all those with smaller sequence numbers. Not thread-safe.
class FinishedItems {
 public:
  /// No more items should start while `max_bytes` of text, or kMaxItems, wait to be reported.
  FinishedItems(bool in_order, std::size_t max_bytes) : in_order_(in_order), max_bytes_(max_bytes) {
    spare_.reserve(kMaxSpare);
    spare_texts_.reserve(kMaxSpare);
  }

  void add(std::size_t sequence, Outcome outcome) {
    const std::size_t at = in_order_ ? sequence - taken_ : waiting_.size();
    const std::size_t size = outcome.text.size();
    if (spare_.empty()) spare_.push_back(std::make_unique<Outcome>());
    if (waiting_.size() <= at) waiting_.resize(at + 1);  // the last step that can throw
    *spare_.back() = std::move(outcome);
    waiting_[at] = std::move(spare_.back());
    spare_.pop_back();
    ++count_;
    bytes_ += size;
  }

  /// Removes and returns all outcomes that can be reported now. bytes() includes their texts until
  /// forget() is called. If take() throws, nothing is removed.
  std::vector<Outcome> take() {
    const auto missing = std::find(waiting_.begin(), waiting_.end(), nullptr);
    std::vector<Outcome> ready;
    ready.reserve(static_cast<std::size_t>(missing - waiting_.begin()));
    for (; !waiting_.empty() && waiting_.front() != nullptr; waiting_.pop_front()) {
      ready.push_back(std::move(*waiting_.front()));
      if (spare_.size() < kMaxSpare) spare_.push_back(std::move(waiting_.front()));
      ++taken_;
      --count_;
    }
    return ready;
  }

  /// Call after reporting. Keeps the texts' buffers for spare_text().
  void forget(std::vector<Outcome>& reported) {
    for (Outcome& outcome : reported) {
      bytes_ -= outcome.text.size();
      if (outcome.text.capacity() <= kSmallText && spare_texts_.size() < kMaxSpare)
        spare_texts_.push_back(std::move(outcome.text));
    }
  }

  /// An empty string, with the buffer of an earlier text if there is one.
  std::string spare_text() {
    if (spare_texts_.empty()) return {};
    std::string text = std::move(spare_texts_.back());
    spare_texts_.pop_back();
    text.clear();
    return text;
  }

  /// Whether no item may start. Counts outcomes that are being reported by their texts.
  bool is_full() const { return count_ >= kMaxItems || (bytes_ > 0 && bytes_ >= max_bytes_); }
  bool is_half_full() const { return count_ >= kMaxItems / 2 || bytes_ >= max_bytes_ / 2; }
  std::size_t bytes() const { return bytes_; }  ///< of texts

 private:
  static constexpr std::size_t kMaxItems = 1024;
  // Buffers are reused because memory allocated on one thread and freed on another makes both
  // threads wait for the allocator.
  static constexpr std::size_t kMaxSpare = 256, kSmallText = 4096;

  const bool in_order_;
  const std::size_t max_bytes_;
  std::size_t taken_ = 0, count_ = 0, bytes_ = 0;
  std::deque<std::unique_ptr<Outcome>> waiting_;  ///< in order: by sequence number minus taken_
  std::vector<std::unique_ptr<Outcome>> spare_;
  std::vector<std::string> spare_texts_;
};

}  // namespace attn
