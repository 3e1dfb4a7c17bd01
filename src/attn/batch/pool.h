// Runs many items on a few threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <span>
#include <string>

#include "attn/batch/item.h"

namespace attn {

/// Decides whether an item is completed by its worker or by the time limit.
struct CompletionToken {
  /// True if the worker may complete the item, false if the time limit has expired. Later calls
  /// return the same. Call it before publishing results.
  std::function<bool()> acquire;
  std::function<bool()> cancelled;  ///< whether the item was reported as overdue
};

struct PoolOptions {
  std::size_t threads = 1;
  double timeout = 0;                               ///< seconds per item; 0: no limit
  bool fail_fast = false;                           ///< start no item after one has failed
  bool in_order = false;                            ///< report outcomes in the order of the items
  std::size_t max_waiting = std::size_t{64} << 20;  ///< bytes of text of unreported outcomes
};

/// `report` and `tick` are never called at the same time.
struct PoolCalls {
  std::function<void()> begin;  ///< on each worker thread, before its first item
  /// Called on many threads at the same time. The string is empty, and its buffer may be used for
  /// the outcome's text.
  std::function<Outcome(const Item&, const CompletionToken&, std::string)> work;
  std::function<void(std::span<const Outcome>)> report;  ///< outcomes since the last call
  std::function<void()> tick;  ///< about twenty times a second, on the caller's thread
};

struct PoolEnd {
  std::exception_ptr fault;  ///< thrown by `work`, `report` or the source; it ended the run
  std::size_t overdue = 0;   ///< threads that still compute items over their time limit
};

/// Runs every item of `source` through `calls.work`. Workers block all signals.
///
/// With `in_order`, a finished item waits for those before it. No item is started while too many
/// outcomes wait to be reported (FinishedItems).
///
/// A computation cannot be interrupted. An item over its time limit is reported as failed by the
/// next tick; its thread continues, its result is discarded, and a new thread takes its place. An
/// item that finishes late, but before that tick, also fails. If such threads are still running at
/// the end (`overdue`), the caller must end the process without running destructors, because the
/// threads may use any object. `calls`, `source` and `stop` must exist until then. Setting `stop`
/// ends the run after the current items.
PoolEnd run_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                 std::atomic<bool>& stop);

/// The outcome of an item that has used `seconds`, more than its limit.
Outcome overdue_outcome(const Item& item, double limit, double seconds);

/// Between two ticks of a pool.
inline constexpr std::chrono::milliseconds kTickInterval{50};

}  // namespace attn
