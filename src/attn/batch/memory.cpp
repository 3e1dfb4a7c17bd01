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

Memory::Share::Share(Memory& memory, std::size_t bytes, const std::function<bool()>& given_up)
    : memory_(memory), bytes_(std::min(bytes, memory.most_)) {
  std::unique_lock lock(memory_.mutex_);
  const std::size_t ticket = memory_.tickets_++;
  memory_.waiting_.insert(ticket);
  const auto my_turn = [&] {
    return *memory_.waiting_.begin() == ticket && memory_.free_ >= bytes_;
  };
  bool wanted = true;
  while (!my_turn() && (wanted = !given_up())) memory_.freed_.wait_for(lock, kLookEvery);
  memory_.waiting_.erase(ticket);
  if (wanted) memory_.free_ -= bytes_;
  const bool others = !memory_.waiting_.empty();
  lock.unlock();
  if (others) memory_.freed_.notify_all();
  if (!wanted) throw GivenUp{};
}

Memory::Share::~Share() {
  {
    const std::lock_guard lock(memory_.mutex_);
    memory_.free_ += bytes_;
    if (memory_.waiting_.empty()) return;
  }
  memory_.freed_.notify_all();
}

bool Memory::Share::grow_to(std::size_t bytes) {
  const std::size_t wanted = std::min(bytes, memory_.most_);
  if (wanted <= bytes_) return true;
  const std::lock_guard lock(memory_.mutex_);
  if (wanted - bytes_ > memory_.free_) return false;
  memory_.free_ -= wanted - bytes_;
  bytes_ = wanted;
  return true;
}

}  // namespace attn
