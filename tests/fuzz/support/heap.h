// How much memory was in use at once.
#pragma once

#include <cstddef>

namespace attn::fuzz {

/// Counts what is allocated from here on; one at a time, on one thread.
class HeapPeak {
 public:
  HeapPeak();
  HeapPeak(const HeapPeak&) = delete;
  HeapPeak& operator=(const HeapPeak&) = delete;
  ~HeapPeak();
  std::size_t bytes() const;
};

}  // namespace attn::fuzz
