#include "attn/batch/memory.h"

#include <algorithm>
#include <chrono>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attn {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);

}  // namespace

void give_freed_memory_back() {
#ifdef __GLIBC__
  // Fixed: the library would raise it with each large block that is freed, and keep the next ones.
  constexpr int kLargeBlock = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, kLargeBlock);
#endif
}

bool Memory::take(std::size_t bytes) {
  std::size_t free = free_;
  while (free >= bytes)
    if (free_.compare_exchange_weak(free, free - bytes)) return true;
  return false;
}

Memory::Share::Share(Memory& memory, std::size_t bytes, const std::function<bool()>& given_up)
    : memory_(memory), bytes_(std::min(std::max(bytes, memory.least_), memory.most_)) {
  if (memory_.waiters_ == 0 && memory_.take(bytes_)) return;
  std::unique_lock lock(memory_.mutex_);
  const std::size_t ticket = memory_.tickets_++;
  memory_.waiting_.insert(ticket);
  ++memory_.waiters_;
  bool taken = false;
  const auto is_settled = [&] {
    taken = *memory_.waiting_.begin() == ticket && memory_.take(bytes_);
    return taken || given_up();
  };
  while (!is_settled()) memory_.freed_.wait_for(lock, kLookEvery);
  memory_.waiting_.erase(ticket);
  const bool others = --memory_.waiters_ > 0;
  lock.unlock();
  if (others) memory_.freed_.notify_all();
  if (!taken) throw GivenUp{};
}

Memory::Share::~Share() {
  memory_.free_ += bytes_;
  if (memory_.waiters_ == 0) return;
  { const std::lock_guard lock(memory_.mutex_); }  // whoever looks now sees it, or is woken
  memory_.freed_.notify_all();
}

bool Memory::Share::grow_to(std::size_t bytes) {
  const std::size_t wanted = std::min(bytes, memory_.most_);
  if (wanted <= bytes_) return true;
  if (!memory_.take(wanted - bytes_)) return false;
  bytes_ = wanted;
  return true;
}

}  // namespace attn
