// What a tensor argument of the command line means.
#pragma once

#include <string>

#include "attn/io/tensor_file.h"

namespace attn {

/// "FILE": every tensor in it. "FILE#NAME": that one alone, under its name.
TensorMap tensors_of(const TensorRef& ref, TensorFiles& files);

/// How messages call one of a file's tensors: "FILE" or "FILE: NAME", safe to print.
std::string label_of(const std::string& path, const std::string& name);

}  // namespace attn
