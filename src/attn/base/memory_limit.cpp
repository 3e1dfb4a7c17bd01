#include "attn/base/memory_limit.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace attn {

constinit thread_local std::size_t unchecked_bytes = 0;

namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kProgram = std::size_t{2} << 20;  // for what is small in any job
// Of the memory that is left, a thread may allocate this fraction before the next check.
constexpr std::size_t kParts = 64;
constexpr std::size_t kLeastStep = std::size_t{64} << 10;

std::atomic<std::size_t> g_limit = kUnlimited;  ///< as given
std::atomic<std::size_t> g_most = kUnlimited;   ///< what heap_bytes() and g_mapped may reach
std::atomic<std::size_t> g_mapped = 0;
std::atomic<bool> g_counts_mapped = true;
constinit thread_local bool g_checks = true;
constinit thread_local std::size_t g_left = 0;  ///< unchecked_bytes while there are no checks

#ifdef __GLIBC__

/// What malloc has taken from the system, in the heaps of all threads.
std::size_t heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.arena + heap.hblkhd;
}

/// The same without the pages of free blocks, which it returns to the system. Of each free block,
/// parts of a page at its start and at its end may remain.
std::size_t heap_bytes_after_trimming() {
  constexpr std::size_t kMostRemaining = 2 * 4096;
  malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  const std::size_t remaining = (heap.ordblks + heap.smblks) * kMostRemaining;
  return heap.arena + heap.hblkhd - heap.fordblks + std::min(heap.fordblks, remaining);
}

#else

std::size_t heap_bytes() { return 0; }
std::size_t heap_bytes_after_trimming() { return 0; }

#endif

}  // namespace

MemoryLimitReached::MemoryLimitReached(std::size_t limit) noexcept {
  std::snprintf(text_, sizeof text_,
                "takes more than %zu bytes of memory; --max-memory raises the limit", limit);
}

MemoryLimitReached MemoryLimitReached::within(const char* where) const noexcept {
  if (*where == '\0') return *this;
  MemoryLimitReached error = *this;
  const int length = std::snprintf(error.text_, sizeof error.text_, "%s: %s", where, text_);
  return length < static_cast<int>(sizeof text_) ? error : *this;
}

const char* message_of(const std::bad_alloc& fault) {
  const bool is_limit = dynamic_cast<const MemoryLimitReached*>(&fault) != nullptr;
  return is_limit ? fault.what() : "not enough memory for this job";
}

void return_freed_memory_to_system() {
#ifdef __GLIBC__
  // Fixed thresholds: by default the library raises them with each large block that is freed.
  constexpr int kLargeBlock = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, kLargeBlock);
#endif
}

void keep_freed_memory() {
#ifdef __GLIBC__
  if (g_counts_mapped) return;
  constexpr int kLargeBlock = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, 2 * kLargeBlock);
#endif
}

void stop_keeping_freed_memory() {
  if (g_counts_mapped) return;
  return_freed_memory_to_system();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void limit_memory(std::size_t bytes, bool is_strict) {
  if (is_strict) return_freed_memory_to_system();
  g_counts_mapped = is_strict;
  // Set again, for another file: the free blocks that the last file left do not raise the limit.
  const std::size_t heap = g_limit == kUnlimited ? heap_bytes() : heap_bytes_after_trimming();
  const std::size_t used = heap + g_mapped + kProgram;
  g_limit = bytes;
  g_most = bytes < kUnlimited - used ? bytes + used : kUnlimited;
  unchecked_bytes = 0;
}

void set_memory_checks(bool on) {
  if (on == g_checks) return;
  g_checks = on;
  g_left = std::exchange(unchecked_bytes, on ? g_left : kUnlimited);
}

void check_memory(std::size_t bytes) {
  const std::size_t most = g_most;
  if (most == kUnlimited || !g_checks) {
    unchecked_bytes = kUnlimited;
    return;
  }
  const auto left_of = [most, bytes](std::size_t used) {
    return most < used || most - used < bytes ? 0 : most - used - bytes;
  };
  std::size_t left = left_of(heap_bytes() + g_mapped);
  if (left == 0) left = left_of(heap_bytes_after_trimming() + g_mapped);
  // If there is none, the message needs some.
  unchecked_bytes = left == 0 ? kProgram / 2 : std::max(left / kParts, kLeastStep);
  if (left == 0 && std::uncaught_exceptions() == 0) throw MemoryLimitReached(g_limit);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() { g_mapped -= bytes_; }

void MappedMemory::add(std::size_t bytes) {
  if (!g_counts_mapped) return;
  check_allocation(bytes);
  bytes_ += bytes;
  g_mapped += bytes;
}

}  // namespace attn
