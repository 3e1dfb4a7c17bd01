#include "attn/draw/deflate.h"

#include <zlib.h>

#include <new>

namespace attn {

std::vector<std::byte> deflated(std::span<const std::byte> bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<std::byte> packed(size);
  const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 1);
  if (code != Z_OK) throw std::bad_alloc();  // the only error: the space suffices
  packed.resize(size);
  return packed;
}

}  // namespace attn
