// --as: names under which tensors of other programs are used.
#pragma once

#include <string>
#include <vector>

#include "attn/cli/option.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// --as NAME or --as TENSOR=NAME,...; see renamed().
Option as_option(std::vector<std::string>& target, const std::string& help);

/// `tensors` under the names that --as gives: each entry is "TENSOR=NAME", or "NAME" for the only
/// tensor. Errors: usage, naming `file`, if there is no such tensor or two get the same name.
TensorMap renamed(const TensorMap& tensors, const std::vector<std::string>& as,
                  const std::string& file);

}  // namespace attn
