#include "attn/batch/memory_budget.h"

#include <algorithm>
#include <chrono>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attn {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);  // for cancellation
constexpr std::size_t kLargeBlock = 1 << 20;

/// Small blocks that a large job has freed, in the heaps of all threads.
void return_free_blocks() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

bool MemoryBudget::take(std::size_t bytes) {
  std::size_t free = free_;
  while (free >= bytes)
    if (free_.compare_exchange_weak(free, free - bytes)) return true;
  return false;
}

MemoryBudget::Reservation::Reservation(MemoryBudget& budget, std::size_t bytes,
                                       const std::function<bool()>& cancelled)
    : budget_(budget), bytes_(std::min(std::max(bytes, budget.minimum_), budget.limit_)) {
  if (budget_.ask_) {
    if (bytes_ > budget_.minimum_) budget_.ask_(bytes_, true);
    return;
  }
  if (budget_.waiters_ == 0 && budget_.take(bytes_)) return;
  std::unique_lock lock(budget_.mutex_);
  const std::size_t ticket = budget_.next_ticket_++;
  budget_.waiting_.insert(ticket);
  ++budget_.waiters_;
  bool taken = false;
  const auto is_settled = [&] {
    taken = *budget_.waiting_.begin() == ticket && budget_.take(bytes_);
    return taken || cancelled();
  };
  while (!is_settled()) budget_.freed_.wait_for(lock, kPollInterval);
  budget_.waiting_.erase(ticket);
  const bool others = --budget_.waiters_ > 0;
  lock.unlock();
  if (others) budget_.freed_.notify_all();
  if (!taken) throw Cancelled{};
}

MemoryBudget::Reservation::~Reservation() {
  if (bytes_ >= kLargeBlock) return_free_blocks();
  if (budget_.ask_) return;
  budget_.free_ += bytes_;
  if (budget_.waiters_ == 0) return;
  // A waiter either sees the freed bytes when it checks, or is waiting when it is notified.
  { const std::lock_guard lock(budget_.mutex_); }
  budget_.freed_.notify_all();
}

bool MemoryBudget::Reservation::grow_to(std::size_t bytes) {
  const std::size_t wanted = std::min(bytes, budget_.limit_);
  if (wanted <= bytes_) return true;
  if (budget_.ask_) {
    if (!budget_.ask_(wanted, false)) return false;
    bytes_ = wanted;
    return true;
  }
  if (!budget_.take(wanted - bytes_)) return false;
  bytes_ = wanted;
  return true;
}

}  // namespace attn
