// What attention is computed from, as the user gives it.
#pragma once

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct AttentionArguments {
  TensorMap tensors;  ///< by the names of problem/input_table.h
  Options options = {};
};

}  // namespace attn
