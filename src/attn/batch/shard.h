// The part of a batch that one run computes (--shard), given as numbers or read from the variables
// that a scheduler sets for each task of an array job.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "attn/batch/item.h"

namespace attn {

struct Shard {
  std::size_t index = 1, count = 1;  ///< 1 <= index <= count
  std::size_t block = 1;             ///< consecutive items that belong to the same shard

  bool has(std::size_t item_number) const { return (item_number - 1) / block % count == index - 1; }
};

/// Parses "2/4"; "" is the whole batch. "auto" reads index and count from the scheduler's
/// variables; "auto/4" reads the index only, from 1 to 4, or from 0 to 3 for schedulers that always
/// count from 0. Without `of_ranks`, the variables of MPI are ignored. Errors: usage, also for
/// variables that are missing or contradict each other.
Shard parse_shard(const std::string& text, bool of_ranks = true);

/// The shard of a text such as "2/4", if it is one.
std::optional<Shard> valid_shard(const std::string& text);

/// "2/4", with '/' as the separator.
std::string text_of(const Shard& shard, const std::string& separator = "/");

/// Every count-th block of items, starting with the index-th. Items keep their numbers, so that all
/// shards together produce the same files as the whole batch.
std::unique_ptr<ItemSource> shard_of(std::unique_ptr<ItemSource> source, const Shard& shard);

}  // namespace attn
