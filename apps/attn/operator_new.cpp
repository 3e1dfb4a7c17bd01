// The program's operator new, which counts memory for --max-memory (attn/base/memory_limit.h). The
// other forms of the C++ library call these two; operator delete calls free().
#include <cstdlib>
#include <new>

#include "attn/base/memory_limit.h"

namespace {

/// As the C++ library's: calls the new-handler, which throws, until the allocation succeeds.
[[gnu::cold, gnu::noinline]] void* allocate_again(std::size_t size, std::size_t alignment) {
  for (;;) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    if (void* const block = std::aligned_alloc(alignment, size)) return block;
  }
}

}  // namespace

void* operator new(std::size_t size) {
  attn::check_allocation(size);
  if (void* const block = std::malloc(size)) [[likely]]
    return block;
  return allocate_again(size, alignof(std::max_align_t));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  attn::check_allocation(size);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* const block = std::aligned_alloc(unit, size)) [[likely]]
    return block;
  return allocate_again(size, unit);
}
