// What the header of a .safetensors file says, once it has been found to be true.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/safetensors.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// An element type of the format.
struct SafetensorsKind {
  enum class Coding {
    plain,        ///< the bytes are the elements of `dtype`
    e4m3,         ///< F8_E4M3, to be widened to `dtype`
    e5m2,         ///< F8_E5M2, the same
    unsupported,  ///< no dtype of ours holds it
  };
  std::string_view name;
  std::size_t bits;
  Coding coding;
  DType dtype;
};

struct SafetensorsEntry {
  std::string name;
  const SafetensorsKind* kind = nullptr;
  Shape shape;
  std::size_t begin = 0, end = 0;  ///< offsets into the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the header's order
  SafetensorsMetadata metadata;
};

/// Errors: data, for anything that the format does not allow.
SafetensorsHeader parse_safetensors_header(const FileBytes& file);

/// How the format holds one of our dtypes. All are members of one table, in the order in which the
/// format's own writer puts them, last to first.
const SafetensorsKind& safetensors_kind(DType dtype);

}  // namespace attn
