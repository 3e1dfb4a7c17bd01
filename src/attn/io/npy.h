// NumPy's .npy format, versions 1.0, 2.0 and 3.0 (numpy.lib.format, NEP 1).
//
//   bytes 0-5   0x93 "NUMPY"
//   bytes 6-7   major, minor version
//   then        header length: uint16 (1.0) or uint32 (2.0, 3.0), little-endian
//   then        header: a Python dict literal with the keys descr, fortran_order and shape, in any
//               order, latin-1 (3.0: UTF-8); padded with spaces and '\n' to a multiple of 64
//   then        the elements, in the byte order that descr says
//
// Refused, each by name: object arrays (they hold pickles: never unpickled), strings, dates,
// complex, structured and sub-array dtypes, headers over 10,000 characters (NumPy's own limit),
// shapes whose product overflows or asks for more bytes than follow, and bytes left over.
#pragma once

#include <span>
#include <string>

#include "attn/io/file.h"
#include "attn/io/output_file.h"
#include "attn/io/pieces.h"
#include "attn/tensor/tensor.h"

namespace attn {

bool is_npy(std::span<const std::byte> bytes);

/// `name` stands in errors ("FILE" or "FILE#MEMBER"). The tensor shares the bytes' memory where
/// byte order, layout and alignment allow. Errors: data.
Tensor read_npy(const FileBytes& file, const std::string& name);

/// Version 1.0, C order, little-endian: the header, byte for byte as numpy.save of NumPy 1.24
/// writes it, padded to 64. bfloat16, which NumPy lacks, is written as float32 (exact).
std::string npy_header(DType dtype, const Shape& shape);

/// The dtype that the file holds it in: f32 for bf16, otherwise `dtype`.
DType npy_dtype(DType dtype);

/// A file of one tensor, whose dtype is npy_dtype()'s.
Pieces npy_pieces(const TensorSpec& spec);

void write_npy(const Tensor& tensor, OutputFile& out);

}  // namespace attn
