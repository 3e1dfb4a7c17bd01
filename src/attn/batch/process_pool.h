// Runs the items of a batch in worker processes (--isolate), so that a crash fails only the item
// that was running.
#pragma once

#include <atomic>

#include "attn/batch/memory_budget.h"
#include "attn/batch/pool.h"

namespace attn {

/// As run_pool(), with a process for each of `options.threads` workers. `calls.begin` and
/// `calls.work` are called in the workers, the others in this process. Must be called on the only
/// thread; `memory` is shared by all workers.
///
/// If a worker ends while it runs an item, because of a signal or otherwise, the item fails, with
/// 128 + the signal's number or the exit code. An item over its time limit fails as in run_pool(),
/// and its worker is killed. The worker is replaced, and its other items are run. `overdue` is 0.
/// No worker outlives this process.
PoolEnd run_process_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                         MemoryBudget& memory, std::atomic<bool>& stop);

}  // namespace attn
