#include "attn/io/elements.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

namespace attn {

std::size_t checked_count(const Shape& shape, const std::string& name) {
  try {
    return element_count(shape);
  } catch (const Error& error) {
    fail_at({name}, error.what());
  }
}

std::shared_ptr<std::byte> allocate_bytes(std::size_t size) {
  constexpr std::align_val_t kAlignment{64};
  auto* block = static_cast<std::byte*>(::operator new(size, kAlignment));
  return {block, [](std::byte* bytes) { ::operator delete(bytes, kAlignment); }};
}

namespace {

/// In a file any byte but 0 is true; in a tensor true is 1.
Tensor with_true_as_one(Tensor tensor) {
  const auto is_bool = [](std::byte byte) { return std::to_integer<int>(byte) < 2; };
  if (std::all_of(tensor.raw(), tensor.raw() + tensor.bytes(), is_bool)) return tensor;
  std::byte* const data = tensor.mutable_raw();
  std::transform(data, data + tensor.bytes(), data,
                 [](std::byte byte) { return std::byte{byte != std::byte{0}}; });
  return tensor;
}

}  // namespace

bool is_aligned(const FileBytes& file, std::size_t offset, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(file.data.get() + offset) % size_of(dtype) == 0;
}

Tensor elements_at(const FileBytes& file, std::size_t offset, DType dtype, const Shape& shape) {
  const std::byte* const start = file.data.get() + offset;
  const bool aligned = is_aligned(file, offset, dtype);
  Tensor tensor = aligned ? Tensor(dtype, shape, {file.data, start}) : Tensor(dtype, shape);
  if (!aligned && tensor.size() > 0) std::memcpy(tensor.mutable_raw(), start, tensor.bytes());
  return dtype == DType::boolean ? with_true_as_one(std::move(tensor)) : tensor;
}

Tensor byte_swapped(Tensor tensor) {
  visit_bits(tensor.dtype(), [&]<class Bits>(Bits) {
    std::byte* const data = tensor.mutable_raw();
    for (std::size_t i = 0; i < tensor.bytes(); i += sizeof(Bits))
      std::reverse(data + i, data + i + sizeof(Bits));
  });
  return tensor;
}

Tensor little_endian_elements(const Tensor& tensor) {
  return std::endian::native == std::endian::big ? byte_swapped(tensor) : tensor;
}

}  // namespace attn
