// The elements of a tensor as stored in a binary file: aligned memory and little-endian integers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// element_count(). Errors: data, at `name`.
std::size_t checked_count(const Shape& shape, const std::string& name);

/// `size` uninitialised bytes, aligned to 64 (a cache line and the widest SIMD register), so that a
/// tensor of any dtype can use them. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_bytes(std::size_t size);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The little-endian integer at the start of `bytes`, which has at least sizeof(T) bytes.
template <std::unsigned_integral T>
T little_endian(std::span<const std::byte> bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;)
    value = static_cast<T>(static_cast<T>(value << 8) | std::to_integer<T>(bytes[i]));
  return value;
}

/// Appends `value`, least significant byte first.
template <std::unsigned_integral T>
void append_little_endian(std::string& text, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>(value >> (8 * i) & 0xFFu);
}

/// Calls f with an unsigned integer of the dtype's width. Moving bits instead of floats leaves
/// signalling NaNs unchanged.
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

/// Whether elements of `dtype` at this offset of the file are aligned in memory.
bool is_aligned(const FileBytes& file, std::size_t offset, DType dtype);

/// The elements from byte `offset` of the file, which has enough bytes. They share the file's
/// memory if they are aligned and are copied otherwise. A bool is true if its byte is not 0.
Tensor elements_at(const FileBytes& file, std::size_t offset, DType dtype, const Shape& shape);

/// Reverses the bytes of each element.
Tensor byte_swapped(Tensor tensor);

/// In little-endian byte order; on most machines unchanged.
Tensor little_endian_elements(const Tensor& tensor);

}  // namespace attn
