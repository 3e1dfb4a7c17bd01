#include "support/heap.h"

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>

namespace attn::fuzz {
namespace {

bool g_counting = false;
std::int64_t g_live = 0, g_peak = 0;  // live < 0 if earlier allocations are freed

void on_allocate(const volatile void*, std::size_t size) {
  if (!g_counting) return;
  g_live += static_cast<std::int64_t>(size);
  g_peak = std::max(g_peak, g_live);
}

void on_free(const volatile void* block) {
  if (!g_counting || block == nullptr) return;
  g_live -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<void*>(block)));
}

}  // namespace

HeapPeak::HeapPeak() {
  static const int kInstalled = __sanitizer_install_malloc_and_free_hooks(on_allocate, on_free);
  g_counting = kInstalled > 0;
  g_live = g_peak = 0;
}

HeapPeak::~HeapPeak() { g_counting = false; }

std::size_t HeapPeak::bytes() const { return static_cast<std::size_t>(g_peak); }

}  // namespace attn::fuzz
