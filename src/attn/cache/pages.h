// Key/value caches in pages: pools of pages, and for each sequence the list of its pages.
//
//   K_pages and V_pages    (P, page size, G, D), or (P, G, page size, D) with PoolLayout::hnd
//   KV_pages               both in one pool: (P, 2, page size, G, D) or (P, 2, G, page size, D);
//                          heads of keys and values in turn with PoolLayout::interleaved:
//                          (P, 1, 2G, page size, D) or (P, page size, 2G, D); with
//                          Options::value_width, keys whose first columns are the values:
//                          (P, page size, D), (P, page size, 1, D) or (P, 1, page size, D), or a
//                          cache of cache/flashmla.h
//   CKV_pages, K_pe_pages  these columns and the others (cache/latent.h), each in such a pool
//   block_table (B, n) and key_lengths (B)             pages of each sequence in order
//   kv_indptr (B + 1), kv_indices, last_page_len (B)   the same: sequence b has the pages
//       kv_indices[kv_indptr[b]] to kv_indices[kv_indptr[b + 1] - 1], and last_page_len[b] keys in
//       the last of them
//
// With IndexSpace::cache, key_indices list slots, page * page size + slot, and become lists of the
// keys of sequences. Without a table, the keys of a batch item are the slots that it lists.
//
// If both tables are given, they must agree. Only slots of keys are read; table entries and slots
// beyond the length of a sequence may hold anything. Sequences may share pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attn/cache/listed_slots.h"
#include "attn/cache/stored_rows.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/input_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The inputs that are replaced by keys and values.
inline constexpr std::array kPageInputs = {
    Input::K_pages,     Input::V_pages,   Input::KV_pages,   Input::CKV_pages,    Input::K_pe_pages,
    Input::block_table, Input::kv_indptr, Input::kv_indices, Input::last_page_len};

bool has_pages(const TensorMap& tensors);

/// A checked cache.
class PagedCache {
 public:
  /// Errors: data, with all problems.
  PagedCache(const AttentionArguments& given);

  /// The memory of the tables of gathered(), and of keys and values that are gathered because they
  /// are integers without a scale; saturates.
  std::size_t bytes() const;

  /// The job with K and V (tensor/gathered_rows.h) and with lengths, instead of pages: key_lengths
  /// and a batch item for each sequence, padded with zeros; or, for packed queries, cu_seqlens_k
  /// and the keys of one sequence after those of another. Queries are packed if cu_seqlens_q is
  /// given, or with Layout::thd. Errors: data, for scales that do not fit.
  TensorMap gathered() const;

  /// The lengths of sequences, and for each the pages that have its keys.
  struct Sequences {
    std::vector<std::size_t> lengths;
    std::vector<std::vector<std::int64_t>> pages;
    bool operator==(const Sequences&) const = default;
  };
  Sequences sequences() const { return {lengths_, pages_}; }
  /// Instead of those given, and of as many, for gathered(). Requires a table of pages.
  void set_sequences(Sequences sequences) {
    lengths_ = std::move(sequences.lengths), pages_ = std::move(sequences.pages);
  }
  std::size_t page_size() const { return keys_.slots; }
  std::size_t pool_pages() const { return keys_.pages; }

 private:
  std::size_t items() const { return packed_ ? 1 : lengths_.size(); }
  std::size_t keys_of_item() const;
  /// Sets the rows of a table of keys to the slots of their pages.
  template <class Rows>
  void fill(Rows& rows) const;
  void gather(TensorMap& all, ProblemList& problems) const;  ///< sets K and V
  /// The lists of slots as lists of keys; packed queries of sequence s are [starts[s], starts[s +
  /// 1]).
  Tensor key_indices(std::span<const std::int64_t> starts, ProblemList& problems) const;

  AttentionArguments given_;
  bool packed_ = false;
  Pool keys_, values_;
  std::optional<Pool> rotary_;                    ///< of K_pe_pages
  std::vector<std::size_t> lengths_;              ///< of each sequence
  std::vector<std::vector<std::int64_t>> pages_;  ///< those with keys
  std::optional<ListedSlots> listed_;             ///< with IndexSpace::cache
  /// Without a table of pages: the listed slots, in place of pages.
  std::vector<std::vector<std::int64_t>> slots_;
};

}  // namespace attn
