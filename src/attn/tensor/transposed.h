// Transposition of matrices.
#pragma once

#include "attn/tensor/tensor.h"

namespace attn {

/// (M, N) -> (N, M). The elements are copied unless M or N is 1.
Tensor transposed(const Tensor& matrix);

/// (..., m, n) -> (..., n, m), float64.
Tensor transposed_matrices(const Tensor& x);

}  // namespace attn
