// Hands the items of a batch to workers in other processes, and reports their outcomes. A Transport
// reaches the workers: by pipes (process_pool.h), or by messages to the ranks of attn-mpi. Threads
// (pool.h) take items themselves: waking a thread takes as long as a small job.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "attn/batch/finished_items.h"
#include "attn/batch/message.h"
#include "attn/batch/pool.h"

namespace attn {

class Scheduler;

/// The workers, numbered from 0. A worker may have several items, so that it never waits for the
/// next one.
class Transport {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Transport() = default;

  virtual std::size_t workers() const = 0;
  virtual std::size_t items_of(std::size_t worker) const = 0;  ///< unfinished ones
  virtual bool can_take_another(std::size_t worker) const = 0;
  virtual void assign(std::size_t worker, Assignment assignment) = 0;
  /// No item is left to assign, but a worker could take one.
  virtual void share_waiting_items(Scheduler&) {}
  virtual void send() = 0;  ///< what was assigned
  /// Waits for replies, until `end` at most, and passes outcomes to the scheduler.
  virtual void collect(Scheduler& scheduler, Clock::time_point end) = 0;
  virtual void tick() {}  ///< about twenty times a second
};

class Scheduler {
 public:
  /// With `reports_at_once`, outcomes are reported as they arrive, otherwise many together.
  Scheduler(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
            std::atomic<bool>& stop, bool reports_at_once);

  /// Runs all items. Throws what `calls`, the source and `transport` throw.
  void run(Transport& transport);

  // For the transport:

  /// The outcome of an item, whose number and name it gets.
  void finish(std::size_t sequence, Item item, Outcome outcome);
  /// Items to be assigned again, before others.
  void take_back(std::deque<Assignment> assignments);
  std::string spare_text() { return finished_.spare_text(); }
  /// The descriptor to wait for, because the source has no item yet, but a worker could take one;
  /// -1: none.
  int awaited_source(const Transport& transport) const;

 private:
  bool feed(Transport& transport);
  std::optional<std::size_t> freest_worker(const Transport& transport) const;
  std::optional<Assignment> next_item();
  bool can_start_item() const { return !stop_ && !source_ended_ && !finished_.is_full(); }
  void report();

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls& calls_;
  std::atomic<bool>& stop_;
  const bool reports_at_once_;
  std::deque<Assignment> returned_;
  std::size_t started_ = 0;  ///< items taken from the source
  bool source_ended_ = false;
  FinishedItems finished_;
};

}  // namespace attn
