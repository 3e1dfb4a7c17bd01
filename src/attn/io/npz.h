// NumPy's .npz format: a zip archive with a member NAME.npy for each array.
//
// The archive's directory is read strictly (io/zip_directory.h). Two members with the same key ("Q"
// and "Q.npy") are refused; "Q" and "q" are different keys. Stored and deflated members are read.
// Encrypted members and other compression methods are refused; the error names the method.
// Checksums are verified. A member's name is only a key: it is never used as a path. Archives are
// written front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/file.h"
#include "attn/io/file_layout.h"
#include "attn/io/read_budget.h"
#include "attn/io/staged_file.h"
#include "attn/io/zip_directory.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Limits on .npz archives.
struct NpzLimits {
  std::size_t members = 65536;
  std::size_t name = 1024;                      ///< bytes of a member's name
  std::size_t expanded = std::size_t{8} << 30;  ///< bytes of all deflated members, expanded
  std::size_t ratio = 2000;                     ///< expanded : compressed, beyond 64 MiB
};

/// What is wrong with a file of torch.save.
inline constexpr const char* kTorchFile =
    "is a file of torch.save, which only Python can read; save the tensors with "
    "safetensors.torch.save_file({'NAME': tensor}, 'FILE.safetensors') or "
    "numpy.save('FILE.npy', tensor.numpy())";

bool is_zip(std::span<const std::byte> bytes);

/// The arrays of numbers by name without ".npy", in the archive's order. Other members are ignored,
/// but an archive without such arrays is an error. `metadata`, if not null, receives
/// npz_metadata(). The arrays stay charged to `budget`, if any. Errors: data.
TensorMap read_npz(const FileBytes& file, FileMetadata* metadata = nullptr,
                   const NpzLimits& limits = {}, ReadBudget* budget = nullptr);

/// The arrays of an archive, all of whose directory entries have been checked.
struct NpzIndex {
  std::vector<ZipMember> arrays;  ///< in the archive's order, named without ".npy"
  std::map<std::string, std::size_t, std::less<>> by_name;  ///< indices in `arrays`
  std::string comment;                                      ///< of the archive
  const std::byte* start = nullptr;                         ///< of the file in which `arrays` are
};

/// Charges the memory of the index, and that of reading it, to `charge`. Errors: data.
NpzIndex read_npz_index(const FileBytes& file, const NpzLimits& limits, MemoryCharge& charge);

/// The archive's comment, in which attn stores provenance, with an empty key, and `tokens` and
/// `key_tokens` as JSON text: the strings of arrays of these names with one axis. Errors: data.
FileMetadata npz_metadata(const FileBytes& file, const NpzIndex& index, ReadBudget* budget);

/// One array, or nothing if absent. `file` has the bytes of the file that was indexed. Errors:
/// data.
std::optional<Tensor> read_npz_array(const FileBytes& file, const NpzIndex& index,
                                     std::string_view key, ReadBudget* budget = nullptr);

/// The layout of an archive of these tensors, whose dtypes are npy_dtype()'s: uncompressed, with
/// member dates 1980-01-01, so that the same arrays give the same bytes; zip64 where sizes require
/// it. `comment` has at most 65,535 bytes. `path` is used in errors, which are: data, for more
/// members or longer names than NpzLimits allows the reader.
FileLayout npz_layout(const std::vector<TensorSpec>& specs,
                      const std::vector<std::uint32_t>& checksums, const std::string& comment,
                      const std::string& path);

}  // namespace attn
