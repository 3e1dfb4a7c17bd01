// A thread of a pool, and the item that it has in hand.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "attn/batch/claim.h"
#include "attn/batch/item.h"

namespace attn {

/// An item at work.
struct Task {
  using Clock = std::chrono::steady_clock;
  enum class Owner { nobody, worker, clock };

  Item item;
  std::size_t place = 0;  ///< among the items started
  double limit = 0;       ///< seconds that it may take; 0: any
  Clock::time_point start = Clock::now();
  std::atomic<Owner> owner = Owner::nobody;  ///< of the right to say what became of it

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  bool is_late() const { return limit > 0 && seconds() >= limit; }

  /// Whether it is `who` now, however often it asks.
  bool claim(Owner who) {
    Owner expected = Owner::nobody;
    return owner.compare_exchange_strong(expected, who) || expected == who;
  }

  /// For its worker; lives no longer than the task.
  Claim claim_of_worker() {
    const auto take = [this] {
      return owner == Owner::worker || (!is_late() && claim(Owner::worker));
    };
    return {take, [this] { return owner == Owner::clock; }};
  }
};

/// What is told of one that is late.
Outcome overdue(const Task& task);

struct Worker {
  std::thread thread;
  bool abandoned = false;  ///< its item's time is up

  void take(std::shared_ptr<Task> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
  }
  std::shared_ptr<Task> task() {
    const std::lock_guard lock(mutex_);
    return task_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Task> task_;
};

}  // namespace attn
