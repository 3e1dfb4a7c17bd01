// NumPy's .npz format: a zip archive with a member NAME.npy for each array.
//
// The archive's directory is read strictly (io/zip_directory.h). Two members with the same key ("Q"
// and "Q.npy") are refused; "Q" and "q" are different keys. Stored and deflated members are read.
// Encrypted members and other compression methods are refused; the error names the method.
// Checksums are verified. A member's name is only a key: it is never used as a path. Archives are
// written front to back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/file_cache.h"
#include "attn/io/file_layout.h"
#include "attn/io/read_budget.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What is wrong with a file of torch.save.
inline constexpr const char* kTorchFile =
    "is a file of torch.save, which only Python can read; save the tensors with "
    "safetensors.torch.save_file({'NAME': tensor}, 'FILE.safetensors') or "
    "numpy.save('FILE.npy', tensor.numpy())";

bool is_zip(std::span<const std::byte> bytes);

/// The arrays by name without ".npy", in the archive's order. Other members are ignored, but an
/// archive without arrays is an error. `comment`, if not null, receives the archive's comment, in
/// which attn stores provenance. The arrays stay charged to `budget`, if any. Errors: data.
TensorMap read_npz(const FileBytes& file, std::string* comment = nullptr,
                   const NpzLimits& limits = {}, ReadBudget* budget = nullptr);

/// The archive's comment. Errors: data.
std::string npz_comment(const FileBytes& file, const NpzLimits& limits, MemoryCharge& charge);

/// One array, or nothing if absent. Other members are not expanded. Errors: data.
std::optional<Tensor> read_npz_array(const FileBytes& file, const std::string& key,
                                     const NpzLimits& limits = {}, ReadBudget* budget = nullptr);

/// The layout of an archive of these tensors, whose dtypes are npy_dtype()'s. `path` is used in
/// errors.
FileLayout npz_layout(const std::vector<TensorSpec>& specs,
                      const std::vector<std::uint32_t>& checksums, const std::string& comment,
                      const std::string& path);

/// Uncompressed, with member dates 1980-01-01, so that the same arrays give the same bytes; zip64
/// where sizes require it. `comment` has at most 65,535 bytes. Errors: data, for more members or
/// longer names than NpzLimits allows the reader.
void write_npz(const TensorMap& tensors, const std::string& comment, OutputFile& out);

}  // namespace attn
