#include "attn/kernel/arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace attn::kernel {

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

std::byte* Arena::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return memory_.get();
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes < kHugePage ? 4096 : kHugePage;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes) throw std::bad_alloc();
  memory_.reset();  // first, so that both need not fit into memory
  bytes_ = 0;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!memory_) throw std::bad_alloc();
  bytes_ = rounded;
  // Faulting in small pages takes longer than the kernels need to fill them. Failure is harmless.
  if (alignment == kHugePage) madvise(memory_.get(), rounded, MADV_HUGEPAGE);
  return memory_.get();
}

}  // namespace attn::kernel
