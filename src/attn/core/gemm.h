// The only door to BLAS.
#pragma once

#include <string>

#include "attn/tensor/tensor.h"

namespace attn {

enum class Second { plain, transposed };

/// a (..., m, k) times b (..., k, n), or (..., n, k) transposed: a matrix product for each matrix
/// of a. Where b has fewer matrices, as many neighbours in a share one as it takes, so that
/// grouped heads and one weight matrix for a whole batch are this product, too. The result has a's
/// leading axes.
///
/// Dtypes: i64, f32 and f64; integers beside floats become those floats. f32 and f64 go through
/// BLAS, on one thread so that the bits do not depend on the machine's cores, save where m n k is
/// so small that it would not pay to open it. i64 is exact, or
/// Error(data) naming `stage` when an element does not fit. m, n and k may be 0.
Tensor matmul(const Tensor& a, const Tensor& b, Second second, const std::string& stage);

}  // namespace attn
