// Lists of keys: the input key_indices says which keys each query sees.
//
// A list has n whole numbers; negative ones are none. Number x means the keys x m to x m + m - 1 of
// the query's own document (all keys of the batch item, without documents), where m is
// Options::index_block; the last block may be cut short. With Duplicates::count, the exponential of
// the score of a key that is listed c times counts c times: temperature * log(c) is added to it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "attn/problem/axis_lengths.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The lists of a problem. Immutable.
class KeyLists {
 public:
  /// `numbers` is (L, n), (B, L, n), (B, G, L, n) or (B, H, L, n), with 1 for B, G or H if lists
  /// are shared; `in` must have its lengths and token_positions. nullptr if problems were added to
  /// `axes`.
  static std::shared_ptr<const KeyLists> checked(const Tensor& numbers, const Inputs& in,
                                                 AxisLengths& axes);

  bool uses_items() const { return items_ > 1; }  ///< whether batch items have lists of their own
  bool uses_heads() const { return heads_ > 1; }

  // `in` is the problem, or a part of it; `entry` is one of in.token_positions.

  /// Calls f(key) for each listed key, in the order of the list.
  template <class F>
  void each(const Inputs& in, std::size_t entry, std::size_t head, std::size_t query, F f) const;

  /// Narrows the range to the keys that are listed. False if these are not contiguous.
  bool narrow(const Inputs& in, std::size_t entry, std::size_t query,
              kernel::KeyRange& range) const;

  /// What Duplicates::count adds to scores, in the dtype of the computation.
  Tensor log_counts(const Inputs& in) const;
  Shape shape_of_log_counts(const Inputs& in) const;

 private:
  /// The keys of a batch item by document, in their order; without padding.
  struct Documents {
    struct Part {
      std::size_t first = 0, count = 0;  ///< in `keys`
    };
    std::map<std::int64_t, Part> parts;
    std::vector<std::size_t> keys;
  };

  explicit KeyLists(const Inputs& in);
  std::span<const std::int64_t> list(std::size_t item, std::size_t head, std::size_t query) const;
  std::span<const std::size_t> keys_of(std::size_t item, std::int64_t document) const;
  bool check(const Inputs& in, AxisLengths& axes) const;

  std::size_t items_ = 1, heads_ = 1;  ///< axes of numbers_
  std::size_t sharing_ = 1;            ///< query heads of a list
  std::size_t queries_ = 0, n_ = 0, block_ = 1;
  Tensor numbers_;                    ///< (items, heads, L, n), i64
  std::vector<Documents> documents_;  ///< for each batch item, or one for all
};

template <class F>
void KeyLists::each(const Inputs& in, std::size_t entry, std::size_t head, std::size_t query,
                    F f) const {
  const std::size_t item = in.first_item + entry;
  const std::span<const std::size_t> keys =
      keys_of(item, in.token_positions[entry].queries.segment(query));
  for (const std::int64_t number : list(item, in.first_head + head, query)) {
    if (number < 0 || keys.empty()) continue;
    const std::size_t first = static_cast<std::size_t>(number) * block_;
    for (const std::size_t key : keys.subspan(first, std::min(block_, keys.size() - first)))
      if (key < in.P + in.N) f(key);  // a part of a problem may lack the last keys
  }
}

}  // namespace attn
