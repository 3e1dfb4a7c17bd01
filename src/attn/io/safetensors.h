// The safetensors format (huggingface/safetensors, "Format").
//
//   bytes 0-7   N, the header's length, little-endian
//   then        the header, N bytes of JSON that start with '{', optionally padded with spaces:
//               {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...},
//               optionally with "__metadata__", an object of strings
//   then        the elements: little-endian, row-major; offsets count from here
//
// All rules are enforced: the tensors fill the rest of the file without gaps or overlaps, their
// sizes match dtype and shape, names are unique, and an entry has exactly these three keys. Headers
// have at most 100,000,000 bytes, as in the reference implementation.
//
// F8_E4M3 and F8_E5M2 (Micikevicius et al. 2022, arXiv:2209.05433) become float32, which is exact.
// Tensors of C64, F4, F6_*, F8_E8M0 and the FNUZ variants of F8 are validated but cannot be read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/number_code.h"
#include "attn/io/file.h"
#include "attn/io/file_layout.h"
#include "attn/io/read_budget.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Whether the file seems to start with a header.
bool is_safetensors(std::span<const std::byte> bytes);

/// All tensors, in the header's order; `metadata`, if not null, receives __metadata__. The tensors
/// share the file's memory if they are aligned. Copies stay charged to `budget`, if any. Errors:
/// data.
TensorMap read_safetensors(const FileBytes& file, FileMetadata* metadata = nullptr,
                           ReadBudget* budget = nullptr);

/// The layout of a file of these tensors: ordered by dtype, largest elements first, then by name,
/// with a header padded to 8 bytes, as in the reference implementation. All tensors are aligned,
/// and the same tensors give the same bytes. `path` is used in errors, which are: data, for a name
/// that is not UTF-8 or is "__metadata__".
FileLayout safetensors_layout(const std::vector<TensorSpec>& specs, const FileMetadata& metadata,
                              const std::string& path);

/// An element type of the format.
struct SafetensorsKind {
  enum class Coding {
    plain,        ///< the bytes are the elements of `dtype`
    coded,        ///< codes of numbers of `dtype`
    unsupported,  ///< no equivalent dtype
  };
  std::string_view name;
  std::size_t bits;
  Coding coding;
  DType dtype;
  Code code = Code::none;
};

struct SafetensorsEntry {
  std::string name;
  const SafetensorsKind* kind = nullptr;
  Shape shape;
  std::size_t begin = 0, end = 0;  ///< offsets into the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the header's order
  std::vector<std::size_t> by_name;       ///< indices of the entries, sorted by name
  FileMetadata metadata;

  /// The entry of a tensor; nullptr if there is none of this name.
  const SafetensorsEntry* find(std::string_view name) const;
  /// The names that start with `prefix`, in the header's order.
  std::vector<std::string> names_below(std::string_view prefix) const;
  /// Those to search for a suggestion for `name` (base/suggestion.h).
  std::vector<std::string> names_near(std::string_view name) const;

 private:
  std::vector<std::size_t>::const_iterator first_from(std::string_view name) const;
};

/// The length in bytes of what precedes the elements. Errors: data.
std::size_t safetensors_header_size(const FileBytes& file);

/// Charges what the header and its tensors take in memory to `charge`, without their elements.
/// Errors: data, for any violation of the format.
SafetensorsHeader parse_safetensors_header(const FileBytes& file, MemoryCharge& charge);

/// One tensor; others may have unsupported dtypes. Errors: data.
Tensor read_safetensor(const FileBytes& file, const SafetensorsEntry& entry,
                       ReadBudget* budget = nullptr);

/// The entry of a tensor. Errors: data, if `file` has none of this name.
const SafetensorsEntry& entry_named(const SafetensorsHeader& header, const std::string& name,
                                    const FileBytes& file);

/// The element type for one of our dtypes. Its address gives the order in files: later table
/// entries come first.
const SafetensorsKind& safetensors_kind(DType dtype);

}  // namespace attn
