// The header of a .npy file: a Python dict literal, read by a scanner that never recurses.
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
  std::size_t data_offset = 0;  ///< where the elements start
};

/// `bytes` is the file from its first byte; `name` stands in errors. Errors: data. The shape is
/// checked neither for its product nor against what follows: that is the reader's.
///
/// Strict where Python's literals are lax: integers are decimal, without sign, underscore or
/// leading zero (a Python 2 'L' may follow); strings are plain, without escapes or prefixes;
/// comments are refused. A shape has at most 64 axes, as in NumPy 2.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name);

}  // namespace attn
