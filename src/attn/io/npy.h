// NumPy's .npy format, versions 1.0, 2.0 and 3.0 (numpy.lib.format, NEP 1).
//
//   bytes 0-5   0x93 "NUMPY"
//   bytes 6-7   major, minor version
//   then        header length: uint16 (1.0) or uint32 (2.0, 3.0), little-endian
//   then        header: a Python dict literal with the keys descr, fortran_order and shape, in any
//               order, latin-1 (3.0: UTF-8); padded with spaces and '\n' to a multiple of 64
//   then        the elements, in the byte order of descr
//
// Refused: object arrays (pickles are never loaded), dates, complex, structured and sub-array
// dtypes, headers over 10,000 characters (NumPy's limit), shapes whose size overflows or differs
// from the size of the file. Strings can be read as labels only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/file_layout.h"
#include "attn/io/read_budget.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

inline constexpr std::size_t kLongestNpyHeader = 10000;  ///< NumPy's limit

struct NpyHeader {
  DType dtype = DType::f64;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;  ///< of the elements

  /// Elements are strings ('<U5', '|S3'), padded with zeros: the number of characters, and their
  /// size, 4 (UTF-32) or 1. `dtype` has no meaning.
  std::size_t characters = 0, character_size = 0;
  bool has_strings() const { return character_size != 0; }
};

/// `bytes` is the whole file; `name` is used in errors. Errors: data. Does not compare the shape
/// with the size of the file.
///
/// Stricter than Python: integers are decimal, without sign, underscore or leading zero (a Python 2
/// 'L' may follow); strings have no escapes or prefixes; comments are refused. A shape has at most
/// 64 axes, as in NumPy 2.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name);

/// Throws the error (data) for an array of strings that is used as a tensor.
[[noreturn]] void refuse_strings(const std::string& name);

bool is_npy(std::span<const std::byte> bytes);

/// `name` is used in errors ("FILE" or "FILE#MEMBER"). The tensor shares the file's memory where
/// byte order, layout and alignment allow; copies stay charged to `budget`, if any. Errors: data.
Tensor read_npy(const FileBytes& file, const std::string& name, ReadBudget* budget = nullptr);
Tensor read_npy(const FileBytes& file, const NpyHeader& header, const std::string& name,
                ReadBudget* budget = nullptr);

/// Memory for each byte of an array of strings: a string has at least one byte, is in two lists,
/// and takes up to six bytes in JSON, as in "\u0001".
inline constexpr std::size_t kBytesOfStringByte = 2 * sizeof(std::string) + 12;

/// The elements of an array of strings of one axis, in UTF-8. Errors: data, for other arrays and
/// for characters that Unicode lacks.
std::vector<std::string> read_npy_strings(const FileBytes& file, const std::string& name);

/// The header for version 1.0, C order, little-endian, padded to 64 bytes: byte for byte as
/// numpy.save of NumPy 1.24. bfloat16, which NumPy lacks, is written as float32 (exact).
std::string npy_header(DType dtype, const Shape& shape);

/// The dtype in the file: f32 for bf16, otherwise `dtype`.
DType npy_dtype(DType dtype);

/// The layout of a file of one tensor, whose dtype is npy_dtype()'s.
FileLayout npy_layout(const TensorSpec& spec);

}  // namespace attn
