// Tensors named on the command line.
#pragma once

#include <string>

#include "attn/io/tensor_file.h"

namespace attn {

/// All tensors of "FILE", or the one of "FILE#NAME".
TensorMap tensors_of(const TensorRef& ref, TensorFiles& files);

/// "FILE" or "FILE: NAME", for messages; safe to print.
std::string label_of(const std::string& path, const std::string& name);

}  // namespace attn
