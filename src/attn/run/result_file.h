// Reads results back: tensors, their labels, tokens and provenance (run/result_writer.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/io/tensor_file.h"
#include "attn/job/labels.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A result file as read back. `tokens` and `made_by` are empty if the file has none.
struct ResultFile {
  TensorMap tensors;
  std::vector<std::string> tokens;
  Json made_by;
  std::vector<std::string> key_tokens = {};    ///< {} if those of keys are not known to differ
  std::vector<std::string> column_names = {};  ///< of a CSV file; `tokens` are those of its rows
  std::map<std::string, Labels> parts = {};    ///< labels of tensors that are parts of others

  /// A key of the job that computed this result, or nullptr.
  const Json* job(const std::string& key) const;
  /// Of the tensor `name`, which is "JOB/OUTPUT" in a bundle.
  Labels labels(const std::string& name) const;
};

/// The made_by of the result that `tensor` belongs to: in a bundle of `attn batch`, that of its job
/// (batch/bundle.h).
const Json& made_by_of(const Json& made_by, const std::string& tensor);

/// The made_by of a result, without reading its tensors. JSON files are parsed only if they have
/// one. Errors: as TensorFiles.
Json read_made_by(const std::string& path, TensorFiles& files);

/// Comments and metadata keys of other programs are ignored. Errors: as TensorFiles.
ResultFile read_result(const std::string& path, TensorFiles& files);

/// Adds the tensor of FILE#NAME, which may be a part of one, as `name`. made_by becomes that of
/// this tensor: positions and visible keys of a part are unknown unless its rows and columns are
/// those of the whole tensor. Errors: as TensorFiles.
void add_tensor(const TensorRef& ref, const std::string& name, TensorFiles& files,
                ResultFile& result);

}  // namespace attn
