// --shard I/N: every N-th job of a batch, for running it on several machines.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "attn/batch/item.h"

namespace attn {

struct Shard {
  std::size_t index = 1, count = 1;  ///< 1 <= index <= count
};

/// Parses "2/4"; "" is the whole batch. Errors: usage.
Shard parse_shard(const std::string& text);

/// Every count-th item, starting with the index-th. Items keep their numbers, so that all shards
/// together produce the same files as the whole batch.
std::unique_ptr<ItemSource> shard_of(std::unique_ptr<ItemSource> source, const Shard& shard);

}  // namespace attn
