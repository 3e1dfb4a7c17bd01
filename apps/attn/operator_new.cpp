// The program's operator new, which counts memory for --max-memory (attn/base/memory_limit.h), and
// keeps small freed blocks. The other forms of the C++ library call those that are here.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "attn/base/memory_limit.h"

namespace {

/// A freed block, in a list of blocks of the same size.
struct FreeBlock {
  FreeBlock* next;
};

// malloc and free take 160 instructions, and a small job of a batch needs 70 blocks. Each thread
// therefore keeps freed blocks of up to kUnit * kLists bytes for its next allocations.
constexpr std::size_t kUnit = 16, kLists = 64;
struct FreeBlocks {
  FreeBlock* lists[kLists];
  std::size_t spare_bytes;  ///< how much more may be kept
};
constinit thread_local FreeBlocks free_blocks = {{}, std::size_t{64} << 10};

/// The list for blocks of this size; kLists or above if they are not kept.
std::size_t list_of(std::size_t size) { return (size - 1) / kUnit; }
std::size_t size_in(std::size_t list) { return (list + 1) * kUnit; }

/// Frees the kept blocks of a thread when it ends.
struct KeptBlocks {
  KeptBlocks() = default;
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;
  ~KeptBlocks() {
    free_blocks.spare_bytes = 0;
    for (FreeBlock*& first : free_blocks.lists)
      while (first != nullptr) std::free(std::exchange(first, first->next));
  }
};

/// As the C++ library's: calls the new-handler, which throws, until the allocation succeeds.
[[gnu::cold, gnu::noinline]] void* allocate_again(std::size_t size, std::size_t alignment) {
  for (;;) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    if (void* const block = std::aligned_alloc(alignment, size)) return block;
  }
}

/// A block that can be kept in the list of its size.
[[gnu::noinline]] void* allocate(std::size_t size) {
  attn::check_allocation(size);
  const std::size_t list = list_of(size);
  if (list < kLists) {
    thread_local KeptBlocks kept;
    static_cast<void>(kept);
    size = size_in(list);
  }
  if (void* const block = std::malloc(size)) [[likely]]
    return block;
  return allocate_again(size, alignof(std::max_align_t));
}

}  // namespace

// These two end with each of their calls, so that the common case saves no registers.
void* operator new(std::size_t size) {
  const std::size_t list = list_of(size);
  FreeBlocks& free = free_blocks;
  if (size > attn::unchecked_bytes || list >= kLists || free.lists[list] == nullptr) [[unlikely]]
    return allocate(size);
  attn::unchecked_bytes -= size;
  FreeBlock* const block = free.lists[list];
  free.lists[list] = block->next;
  free.spare_bytes += size_in(list);
  return block;
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  attn::check_allocation(size);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* const block = std::aligned_alloc(unit, size)) [[likely]]
    return block;
  return allocate_again(size, unit);
}

void operator delete(void* block) noexcept { std::free(block); }

void operator delete(void* block, std::size_t size) noexcept {
  const std::size_t list = list_of(size);
  FreeBlocks& free = free_blocks;
  if (block == nullptr || list >= kLists || free.spare_bytes < size_in(list))
    return std::free(block);
  free.spare_bytes -= size_in(list);
  free.lists[list] = new (block) FreeBlock{free.lists[list]};
}
