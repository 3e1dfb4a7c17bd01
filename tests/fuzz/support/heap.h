// The peak of allocated memory.
#pragma once

#include <cstddef>

namespace attn::fuzz {

/// Counts allocations during its lifetime; only one object at a time, on one thread.
class HeapPeak {
 public:
  HeapPeak();
  HeapPeak(const HeapPeak&) = delete;
  HeapPeak& operator=(const HeapPeak&) = delete;
  ~HeapPeak();
  std::size_t bytes() const;
};

}  // namespace attn::fuzz
