// One part of a batch, so that machines or array jobs can share it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "attn/batch/item.h"

namespace attn {

struct Shard {
  std::size_t index = 1, count = 1;  ///< 1 <= index <= count
};

/// "2/4"; "" is the whole. Errors: usage.
Shard parse_shard(const std::string& text);

/// Every count-th item from the index-th on. Items keep their numbers, so that all shards together
/// give what the whole does.
std::unique_ptr<ItemSource> shard_of(std::unique_ptr<ItemSource> source, const Shard& shard);

}  // namespace attn
