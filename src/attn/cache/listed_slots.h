// Lists of keys as serving programs store them: key_indices that count the slots of a pool of pages
// (IndexSpace::cache), and index_counts, which cut each list. They become lists of the keys of
// sequences (problem/key_lists.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attn/base/error.h"
#include "attn/problem/attention_arguments.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// key_indices in which numbers from index_counts on are -1. index_counts is (L) or (B, L), where
/// 1 may replace L. Errors: data.
TensorMap with_cut_lists(const AttentionArguments& given);

/// A list of slots for each query of a job.
class ListedSlots {
 public:
  /// `slots`: how many a pool has. nullopt if a problem was reported.
  static std::optional<ListedSlots> checked(const AttentionArguments& given, std::size_t slots,
                                            ProblemList& problems);

  std::size_t items() const { return items_; }  ///< batch items
  std::size_t bytes() const { return numbers_.bytes(); }

  /// The slots that the item's queries list, in ascending order, each once.
  std::vector<std::int64_t> used(std::size_t item) const;

  /// The lists with key_of(item, query, slot) instead of each slot, for all items. An exception of
  /// key_of ends it.
  template <class KeyOf>
  Tensor translated(KeyOf key_of) const;

 private:
  std::size_t given_items_ = 1, items_ = 1, heads_ = 1, L_ = 0, n_ = 0;
  bool has_items_ = false, has_heads_ = false;  ///< axes of the given lists
  Tensor numbers_;                              ///< (given_items_, heads, L, n), i64
};

template <class KeyOf>
Tensor ListedSlots::translated(KeyOf key_of) const {
  Shape shape{L_, n_};
  if (has_heads_) shape.insert(shape.begin(), heads_);
  if (has_items_ || has_heads_ || items_ > 1) shape.insert(shape.begin(), items_);
  Tensor keys(DType::i64, shape);
  const auto slots = numbers_.data<std::int64_t>();
  const auto to = keys.mutable_data<std::int64_t>();
  const std::size_t size = heads_ * L_ * n_;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::int64_t slot = slots[i % (given_items_ * size)];
    to[i] = slot < 0 ? -1 : key_of(i / size, i / n_ % L_, slot);
  }
  return keys;
}

}  // namespace attn
