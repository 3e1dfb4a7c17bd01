// Numbers in float64 that are stored in a narrower type. They are converted when they are first
// read, and never if cast() asks for a narrower type: gradients are computed in float64 before and
// behind the kernels, which compute in float32.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

/// cast(tensor, DType::f64). The elements of large floats are converted when they are first read.
Tensor widened(const Tensor& tensor);

}  // namespace attn
