#include "attn/batch/channel.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

namespace attn {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void CurrentJob::begin(std::size_t sequence) {
  start_ = steady_nanoseconds();
  state_ = state_of(sequence);
}

bool CurrentJob::acquire() {
  std::uint64_t state = state_;
  do {
    if ((state & kExpired) != 0) return false;
  } while (!state_.compare_exchange_weak(state, state | kAcquired));
  return true;
}

bool CurrentJob::end() { return (state_.exchange(0) & kWithdrawn) != 0; }

std::optional<std::size_t> CurrentJob::sequence() const {
  const std::uint64_t state = state_;
  return state == 0 ? std::nullopt : std::optional<std::size_t>(state / kFlags - 1);
}

double CurrentJob::seconds(std::size_t sequence) const {
  const std::int64_t start = start_;  // before state_: a later job's start is never used
  if (!is_running(sequence, state_)) return 0;
  return static_cast<double>(steady_nanoseconds() - start) * 1e-9;
}

bool CurrentJob::expire(std::size_t sequence) { return set(sequence, kExpired, kAcquired); }

bool CurrentJob::withdraw_others(std::size_t sequence) { return set(sequence, kWithdrawn, 0); }

bool CurrentJob::set(std::size_t sequence, std::uint64_t flag, std::uint64_t unless) {
  std::uint64_t state = state_;
  do {
    if (!is_running(sequence, state) || (state & unless) != 0) return false;
  } while (!state_.compare_exchange_weak(state, state | flag));
  return true;
}

std::size_t ReplyBytes::put(std::string_view bytes) {
  const std::uint64_t start = put_.load(std::memory_order_relaxed);
  const std::size_t count = std::min<std::size_t>(bytes.size(), kSize - (start - taken_));
  const std::size_t at = start % kSize, first = std::min<std::size_t>(count, kSize - at);
  std::memcpy(bytes_.data() + at, bytes.data(), first);
  std::memcpy(bytes_.data(), bytes.data() + first, count - first);
  put_ = start + count;
  return count;
}

bool ReplyBytes::is_half_full() const { return put_ - taken_ > kSize / 2; }

bool ReplyBytes::take(std::string& out) {
  const std::uint64_t start = taken_.load(std::memory_order_relaxed), count = put_ - start;
  if (count > kSize) return false;
  const std::size_t at = start % kSize, first = std::min<std::size_t>(count, kSize - at);
  out.append(bytes_.data() + at, first);
  out.append(bytes_.data(), count - first);
  taken_ = start + count;
  return true;
}

Channel* make_channel() {
  void* const memory =
      mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return new (memory) Channel;  // does not touch the pages of ReplyBytes
}

void free_channel(Channel* channel) { munmap(channel, sizeof(Channel)); }

}  // namespace attn
