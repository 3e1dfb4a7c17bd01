// Floats that are stored in a narrower type. They are converted when they are first read, but not
// by cast(), which converts the stored ones, nor by kernels, which convert rows while they pack
// them. Gradients are computed in float64 before and behind kernels in float32.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

/// cast(tensor, dtype). If the elements are many floats of a narrower type than `dtype`, they are
/// converted when they are first read.
Tensor widened(const Tensor& tensor, DType dtype);

/// Whether widened() leaves the elements as they are until they are read.
bool is_widened_later(const Tensor& tensor, DType dtype);

}  // namespace attn
