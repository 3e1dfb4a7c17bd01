// Where the elements of a tensor are in a file, for programs that read them without a parser of the
// format.
#pragma once

#include <cstdint>
#include <optional>

#include "attn/base/dtype.h"

namespace attn {

/// Little-endian elements in C order.
struct TensorPlace {
  /// Bytes of a file that are compressed with deflate, without a header.
  struct Packed {
    std::uint64_t begin, size;
  };
  DType dtype = DType::f64;
  std::uint64_t offset = 0;  ///< of the elements: in the file, or in what `packed` expands to
  std::optional<Packed> packed = {};
  std::uint64_t file_size = 0;
};

}  // namespace attn
