// The validated header of a .safetensors file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/read_budget.h"
#include "attn/io/safetensors.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// An element type of the format.
struct SafetensorsKind {
  enum class Coding {
    plain,        ///< the bytes are the elements of `dtype`
    e4m3,         ///< F8_E4M3, converted to `dtype`
    e5m2,         ///< F8_E5M2, converted to `dtype`
    unsupported,  ///< no equivalent dtype
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

/// Charges what the header and its tensors take in memory to `charge`, without their elements.
/// Errors: data, for any violation of the format.
SafetensorsHeader parse_safetensors_header(const FileBytes& file, MemoryCharge& charge);

/// The element type for one of our dtypes. Its address gives the order in files: later table
/// entries come first.
const SafetensorsKind& safetensors_kind(DType dtype);

}  // namespace attn
