// The elements of a tensor as a binary file holds them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Calls f with the unsigned integer that is as wide as the dtype: bits are moved, never values, so
/// that signalling NaNs survive.
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

/// Those that start `offset` bytes into the file, which has enough of them: shared with it where
/// they are aligned, otherwise copied. Bytes of a bool other than 0 mean true.
Tensor elements_at(const FileBytes& file, std::size_t offset, DType dtype, const Shape& shape);

/// The bytes of each element in reverse.
Tensor byte_swapped(Tensor tensor);

/// As little-endian files hold it: on most machines, as it is.
Tensor little_endian_elements(const Tensor& tensor);

}  // namespace attn
