// Writes .npz archives front to back (io/npz.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/io/file_layout.h"
#include "attn/io/output_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

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
