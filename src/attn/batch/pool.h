// Many items on a few threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <span>

#include "attn/batch/claim.h"
#include "attn/batch/item.h"

namespace attn {

struct PoolOptions {
  std::size_t threads = 1;
  double timeout = 0;      ///< seconds an item may take; 0: any
  bool fail_fast = false;  ///< start no item once one has failed
  bool in_order = false;   ///< report in the order of the items, not as they finish
  std::size_t most_waiting = std::size_t{64} << 20;  ///< bytes of text, of finished items
};

/// `report` and `tick` are called one at a time.
struct PoolCalls {
  std::function<void()> begin;  ///< on each worker's thread, before its first item
  /// Called on many threads at once. Asks its claim before what cannot be taken back. The string is
  /// empty, and may become the outcome's text.
  std::function<Outcome(const Item&, const Claim&, std::string)> work;
  /// What has finished since the last call, one item or many.
  std::function<void(std::span<const Outcome>)> report;
  std::function<void()> tick;  ///< about twenty times a second, on the caller's thread
};

struct PoolEnd {
  std::exception_ptr fault;  ///< what `work`, `report` or the source threw, which ends the whole
  std::size_t overdue = 0;   ///< threads that still compute items whose time was up
};

/// Runs every item of `source` through `calls.work`. Workers leave signals to the calling thread.
///
/// In order, a finished item waits for those before it; no more are started while those that wait
/// hold `most_waiting` bytes of text, or are 1024.
///
/// A computation cannot be stopped from outside. An item whose time is up is reported as failed by
/// the next tick, its thread is left to itself and another takes its place; whatever it computes is
/// thrown away. One that ends before that tick, but late, has failed just so. Where such threads
/// are left at the end (`overdue`), the caller has to end the program without destructors, as they
/// may use anything. Everything in `calls`, `source` and `stop` lives until then. `stop` is set
/// when no more items are wanted.
PoolEnd run_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                 std::atomic<bool>& stop);

}  // namespace attn
