// Arrays in huge pages, which are faster to read. NumPy also uses them, so arrays passed to the
// libraries that attn is compared with are in huge pages, too.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace attn::bench {

template <class T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}

  T* allocate(std::size_t count) {
    constexpr std::size_t kHuge = std::size_t{2} << 20, kLeast = 2 * kHuge;  // NumPy's threshold
    const std::size_t unit = count * sizeof(T) < kLeast ? 64 : kHuge;
    const std::size_t bytes = (count * sizeof(T) + unit - 1) / unit * unit;
    void* memory = std::aligned_alloc(unit, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    if (unit == kHuge) madvise(memory, bytes, MADV_HUGEPAGE);  // failure is harmless
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const HugePages&) const { return true; }
};

template <class T>
using Array = std::vector<T, HugePages<T>>;

}  // namespace attn::bench
