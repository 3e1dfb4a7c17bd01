// The only door to BLAS.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

/// C (m, n) = op(A) op(B) for matrices (2-D tensors) of one dtype, f32, f64 or i64; op transposes
/// when asked. f32 and f64 go through BLAS, i64 through a loop that is exact or throws Error(data)
/// on overflow. m, n or k may be 0.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_b = false);

}  // namespace attn
