// A result read back: its tensors, and what else it says about itself.
#pragma once

#include <string>
#include <vector>

#include "attn/io/json.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// Tokens and made_by stand where result/result_format.h puts them: in a JSON result under these
/// keys, in an .npz in the archive's comment, in a .safetensors in its metadata. Both are empty for
/// any other file.
struct ResultFile {
  TensorMap tensors;
  std::vector<std::string> tokens;
  Json made_by;

  /// A key of the job that made this, or nullptr.
  const Json* job(const std::string& key) const;
};

/// Errors as TensorFiles has them. A comment or key that is not ours is passed over.
ResultFile read_result(const std::string& path, TensorFiles& files);

}  // namespace attn
