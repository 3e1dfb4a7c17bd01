// Jobs on standard input, one JSON object per line (NDJSON).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "attn/batch/item.h"

namespace attn {

/// Reads each line as soon as it is available. Blank lines are skipped, but count in names ("line
/// 3"). The source ends when `stop` is set. A line of more than `max_bytes` is not stored: its item
/// is invalid. Errors: io.
std::unique_ptr<ItemSource> items_of_standard_input(std::size_t max_bytes,
                                                    const std::atomic<bool>& stop);

}  // namespace attn
