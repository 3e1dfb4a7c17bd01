// The elements of a tensor as stored in a binary file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Calls f with an unsigned integer type as wide as the dtype, to move bits instead of values:
/// signalling NaNs then stay unchanged.
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
/// memory where they are aligned and are copied otherwise. A bool is true if its byte is not 0.
Tensor elements_at(const FileBytes& file, std::size_t offset, DType dtype, const Shape& shape);

/// Reverses the bytes of each element.
Tensor byte_swapped(Tensor tensor);

/// In little-endian byte order; on most machines unchanged.
Tensor little_endian_elements(const Tensor& tensor);

}  // namespace attn
