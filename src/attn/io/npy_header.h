// The header of a .npy file: a Python dict literal, read without recursion.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

struct NpyHeader {
  DType dtype = DType::f64;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;  ///< of the elements
};

/// `bytes` is the whole file; `name` is used in errors. Errors: data. Does not compare the shape
/// with the size of the file.
///
/// Stricter than Python: integers are decimal, without sign, underscore or leading zero (a Python 2
/// 'L' may follow); strings have no escapes or prefixes; comments are refused. A shape has at most
/// 64 axes, as in NumPy 2.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name);

}  // namespace attn
