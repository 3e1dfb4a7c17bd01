// Jobs that come as lines of JSON, one a line (NDJSON).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "attn/batch/item.h"

namespace attn {

/// Lines of standard input, each as soon as it is there; empty ones are passed over but counted in
/// names ("line 3"). Once `stop` is set there are no more. A line of more than `longest`
/// bytes is not held: its item has a fault. Errors: io.
std::unique_ptr<ItemSource> items_of_standard_input(std::size_t longest,
                                                    const std::atomic<bool>& stop);

}  // namespace attn
