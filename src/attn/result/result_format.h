// How results are stored in each file format. Tokens and made_by are keys of a JSON result, in the
// archive comment of an .npz, and in the metadata of a .safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/io/file_layout.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"

namespace attn {

/// An object with schema, made_by, tokens and the outputs, with one line per matrix row; everything
/// is on one line if `indent` < 0.
std::string result_json(const Result& result, int indent);
/// `members` is JSON text such as "job":"line 3", inserted after the schema of a result on one
/// line.
void append_result_json(std::string& text, const Result& result, int indent,
                        const std::string& members = "");

/// Whether the format stores elements as bytes, at offsets that are known in advance.
bool is_binary(Format format);

/// The dtype in which a binary format stores an output of `dtype`.
DType stored_dtype(Format format, DType dtype);

/// Whether the format can store made_by.
bool stores_provenance(Format format);

/// A file of tensors in a binary format, with the tokens and made_by of `result`; Errors
/// name `path`.
FileLayout layout_of(Format format, const std::vector<TensorSpec>& specs,
                     const std::vector<std::uint32_t>& checksums, const Result& result,
                     const std::string& path);

}  // namespace attn
