#include "attn/io/bytes.h"

#include <new>

namespace attn {

std::shared_ptr<std::byte> allocate_bytes(std::size_t size) {
  constexpr std::align_val_t kAlignment{64};
  auto* block = static_cast<std::byte*>(::operator new(size, kAlignment));
  return {block, [](std::byte* bytes) { ::operator delete(bytes, kAlignment); }};
}

}  // namespace attn
