// Whose word counts on what became of an item at work.
#pragma once

#include <functional>

namespace attn {

/// The right to say what became of an item: either its worker takes it in time, or, once the item's
/// time is up, the clock has it.
struct Claim {
  std::function<bool()> take;  ///< true when it is the worker's now, however often it asks
  std::function<bool()> lost;  ///< whether the clock has it
};

}  // namespace attn
