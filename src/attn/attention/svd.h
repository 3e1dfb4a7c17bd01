// Truncated singular value decomposition, through LAPACK's gesdd as NumPy's linalg.svd does.
//
//   A (m, n) = U diag(s) Vt,   U (m, k), s (k) descending, Vt (k, n),   k = min(m, n) or `rank`
//
// Keeping the `rank` largest gives the best approximation of that rank (Eckart and Young 1936).
// The signs of singular vectors are arbitrary, and so are the directions of those with equal or
// zero singular values.
#pragma once

#include <cstddef>
#include <optional>

#include "attn/tensor/tensor.h"

namespace attn {

struct Svd {
  Tensor U, s, Vt;  ///< f64, or f32 for an f32 matrix
};

/// Errors: data, if the matrix is not 2-D or contains NaN or infinity, or if the rank exceeds
/// min(m, n).
Svd svd(const Tensor& matrix, std::optional<std::size_t> rank = std::nullopt);

/// The share of the matrix that these singular values account for: the sum of their squares over
/// the sum of the squares of all elements, so 1 - share is the squared relative error of U diag(s)
/// Vt. 1 for a matrix of zeros.
double explained_share(const Tensor& matrix, const Svd& svd);

}  // namespace attn
