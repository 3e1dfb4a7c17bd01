// Memory reservations of the jobs that run at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

namespace attn {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit)
      : limit_(limit), minimum_(std::min(kSmallJob, limit / 256)), free_(limit) {}
  std::size_t limit() const { return limit_; }
  std::size_t minimum() const { return minimum_; }

  /// Asks the process that lends memory to raise the total of this process to `bytes`. With `wait`,
  /// it first takes back what it has lent and returns true when the memory is free; otherwise it
  /// returns false if the memory is not free now.
  using Ask = std::function<bool(std::size_t bytes, bool wait)>;

  /// Call it in a worker process, which runs one job at a time. Reservations then ask for memory
  /// above minimum(). The lender takes it back when the job ends.
  void set_lender(Ask ask) { ask_ = std::move(ask); }

  /// Thrown to a waiting job that has been cancelled.
  struct Cancelled {};

  /// A part of the budget; the destructor returns it. A request for more than the limit reserves
  /// the whole budget.
  ///
  /// A reservation never waits for more memory while it holds some, which could deadlock: if it
  /// cannot grow at once, its owner releases it and makes a new one of the full size. Waiting
  /// requests are served in order.
  class Reservation {
   public:
    /// Waits until `bytes` are free. Throws Cancelled once `cancelled` returns true.
    Reservation(MemoryBudget& budget, std::size_t bytes, const std::function<bool()>& cancelled);
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    ~Reservation();
    bool grow_to(std::size_t bytes);  ///< false, and unchanged, if that is not free now
    std::size_t bytes() const { return bytes_; }

   private:
    MemoryBudget& budget_;
    std::size_t bytes_;
  };

 private:
  static constexpr std::size_t kSmallJob = std::size_t{1} << 18;
  bool take(std::size_t bytes);  ///< false if they are not free

  const std::size_t limit_;
  Ask ask_;                    ///< empty: reserve from this object
  const std::size_t minimum_;  ///< of a reservation, so that those of small jobs need not grow
  // All workers modify these, so they have cache lines of their own.
  alignas(64) std::atomic<std::size_t> free_;
  alignas(64) std::atomic<std::size_t> waiters_ = 0;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable freed_;
  std::size_t next_ticket_ = 0;
  std::set<std::size_t> waiting_;  ///< tickets; the smallest is served first
};

}  // namespace attn
