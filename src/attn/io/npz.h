// NumPy's .npz: a zip archive with one NAME.npy an array.
//
// The archive's directory is read strictly (io/zip_directory.h). Two members of one key ("Q" and
// "Q.npy") are refused; "Q" and "q" are two keys. Stored and deflated members are read, encrypted
// members and other methods are refused by name. No array is returned unless its checksum is right.
// A member's name is only a key: it is never used as a path.
#pragma once

#include <optional>
#include <string>

#include "attn/io/file.h"
#include "attn/io/limits.h"
#include "attn/io/output_file.h"
#include "attn/io/pieces.h"
#include "attn/tensor/tensor.h"

namespace attn {

bool is_zip(std::span<const std::byte> bytes);

/// The arrays by name, without ".npy", in the archive's order; members that are not .npy are
/// passed over, yet an archive without any is refused. `comment` (if asked for) receives the
/// archive's comment, where attn keeps what made the file. Errors: data.
TensorMap read_npz(const FileBytes& file, std::string* comment = nullptr,
                   const NpzLimits& limits = {});

/// The one of that name, or nothing: the others are not inflated, so that their bytes may be
/// anything. Errors: data.
std::optional<Tensor> read_npz_array(const FileBytes& file, const std::string& key,
                                     const NpzLimits& limits = {});

/// A file of these tensors, whose dtypes are npy_dtype()'s; `path` stands in errors.
Pieces npz_pieces(const std::vector<TensorSpec>& specs, const std::vector<std::uint32_t>& checksums,
                  const std::string& comment, const std::string& path);

/// Stored (not compressed), member dates 1980-01-01, so the same arrays give the same bytes;
/// zip64 where sizes need it. `comment` at most 65,535 bytes. Errors: data, for more members or
/// longer names than NpzLimits lets the reader take.
void write_npz(const TensorMap& tensors, const std::string& comment, OutputFile& out);

}  // namespace attn
