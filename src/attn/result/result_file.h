// Reads a result file: tensors, tokens and provenance.
#pragma once

#include <string>
#include <vector>

#include "attn/io/json.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// `tokens` and `made_by` are empty if the file has none (see result/result_format.h).
struct ResultFile {
  TensorMap tensors;
  std::vector<std::string> tokens;
  Json made_by;

  /// A key of the job that computed this result, or nullptr.
  const Json* job(const std::string& key) const;
};

/// Foreign comments and metadata keys are ignored. Errors: as TensorFiles.
ResultFile read_result(const std::string& path, TensorFiles& files);

}  // namespace attn
