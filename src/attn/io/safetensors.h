// The safetensors format (huggingface/safetensors, "Format").
//
//   bytes 0-7   N, the header's length, little-endian
//   then        the header, N bytes of JSON that begin with '{', perhaps padded with spaces:
//               {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...},
//               and perhaps "__metadata__", an object of strings
//   then        the elements: little-endian, row-major; offsets count from here
//
// Every rule is enforced: the tensors' bytes follow one another without a gap or an overlap up to
// the end of the file, and are as many as dtype and shape ask for; names stand once; an entry has
// these three keys and no other. Headers end at 100,000,000 bytes, as in the format's own reader.
//
// F8_E4M3 and F8_E5M2 (Micikevicius et al. 2022, arXiv:2209.05433) become float32, in which each
// of their values is exact. C64, F4, F6_*, F8_E8M0 and the FNUZ kinds of F8 are checked like the
// others, but what they hold is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/output_file.h"
#include "attn/io/pieces.h"
#include "attn/tensor/tensor.h"

namespace attn {

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// Whether a header that ends inside the file seems to stand where one has to.
bool is_safetensors(std::span<const std::byte> bytes);

/// Every tensor, in the header's order; `metadata` (if asked for) receives __metadata__. The
/// tensors share the file's memory where they are aligned there. Errors: data.
TensorMap read_safetensors(const FileBytes& file, SafetensorsMetadata* metadata = nullptr);

/// The one of that name; others may be of a dtype that attn has no numbers for. Errors: data.
Tensor read_safetensor(const FileBytes& file, const std::string& name);

/// A file of these tensors; `path` stands in errors, as those of write_safetensors().
Pieces safetensors_pieces(const std::vector<TensorSpec>& specs, const SafetensorsMetadata& metadata,
                          const std::string& path);

/// Ordered by dtype, the largest elements first, then by name, and padded to 8 bytes, as the
/// format's own writer does: so every tensor is aligned, and the same tensors give the same bytes.
/// Errors: data, for a name that is not UTF-8 or is "__metadata__".
void write_safetensors(const TensorMap& tensors, const SafetensorsMetadata& metadata,
                       OutputFile& out);

}  // namespace attn
