// A result in each format that it can be written in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attn/io/pieces.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"

namespace attn {

/// As it stands in a file: an object with schema, made_by, tokens and the outputs, matrices one row
/// a line; `indent` < 0 puts all on one line.
std::string result_json(const Result& result, int indent);
/// `members` is JSON text such as "job":"line 3", inserted after the schema of a result on one
/// line.
void append_result_json(std::string& text, const Result& result, int indent,
                        const std::string& members = "");

/// Whether a format holds elements as bytes, so that where they stand is known beforehand.
bool is_binary(Format format);

/// The dtype in which a binary format holds an output of `dtype`.
DType stored_dtype(Format format, DType dtype);

/// Whether a format has room for what made the result.
bool says_what_made_it(Format format);

/// A file of tensors in a binary format, with the tokens and made_by of `result`; `path` stands in
/// errors.
Pieces pieces_of(Format format, const std::vector<TensorSpec>& specs,
                 const std::vector<std::uint32_t>& checksums, const Result& result,
                 const std::string& path);

}  // namespace attn
