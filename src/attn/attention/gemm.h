// Matrix products; the only file that calls BLAS.
#pragma once

#include <cstddef>
#include <string_view>

#include "attn/tensor/tensor.h"

namespace attn {

enum class Second { plain, transposed };

/// Each matrix of the first operand is multiplied in blocks of this many rows. The bytes of a row
/// of the product then depend on the rows of its block only, and not on how many blocks follow:
/// processes that share a problem divide it between blocks.
inline constexpr std::size_t kProductRows = 256;
/// Wide products are computed in parts of this many columns, for several threads.
inline constexpr std::size_t kProductColumns = 1024;

/// a (..., m, k) times b (..., k, n), or (..., n, k) transposed: a matrix product for each matrix
/// of a. If b has fewer matrices, consecutive matrices of a share one of them, as grouped heads
/// share keys and batch items share weights. The result has a's leading axes.
///
/// Dtypes: i64, f32 and f64; if only one is floating-point, the other is converted. f32 and f64 use
/// BLAS, with one thread so that results do not depend on the number of cores; very small products
/// are computed without it. i64 is exact, or Error(data) that names `stage` if an element does not
/// fit. m, n and k may be 0.
Tensor matmul(const Tensor& a, const Tensor& b, Second second, std::string_view stage);

}  // namespace attn
