#include "attn/attention/svd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <xtensor-blas/xblas.hpp>
#include <xtensor-blas/xlapack.hpp>
#include <xtensor/xview.hpp>

#include "attn/base/error.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

template <class T>
Svd decompose(const Tensor& matrix, std::size_t rank) {
  // Passes A itself to LAPACK, in column-major order, as NumPy does: the transpose, which would
  // save the copy, has the same singular values but other signs.
  xt::xtensor<T, 2, xt::layout_type::column_major> a = array_of<T>(matrix);
  const auto [info, u, s, vt] = xt::lapack::gesdd(a, 'S');
  if (info != 0) fail_data("the singular value decomposition did not converge");

  const std::size_t m = matrix.shape()[0], n = matrix.shape()[1];
  Svd result{Tensor(matrix.dtype(), {m, rank}), Tensor(matrix.dtype(), {rank}),
             Tensor(matrix.dtype(), {rank, n})};
  const auto kept = [rank] { return xt::range(std::size_t{0}, rank); };
  mutable_array_of<T>(result.U) = xt::view(u, xt::all(), kept());
  mutable_array_of<T>(result.s) = xt::view(s, kept());
  mutable_array_of<T>(result.Vt) = xt::view(vt, kept(), xt::all());
  return result;
}

template <class T>
void require_finite(const Tensor& matrix) {
  const auto values = matrix.data<T>();
  const auto bad =
      std::find_if_not(values.begin(), values.end(), [](T x) { return std::isfinite(x); });
  if (bad == values.end()) return;
  const auto at = static_cast<std::size_t>(bad - values.begin()), n = matrix.shape()[1];
  fail_data("expected finite numbers, found " + std::string(std::isnan(*bad) ? "NaN" : "infinity") +
            " at [" + std::to_string(at / n) + ", " + std::to_string(at % n) + "]");
}

/// The sum of (value / unit)^2: no square overflows unless a value is far larger than the unit.
double squares(const Tensor& tensor, double unit) {
  const Tensor values = cast(tensor, DType::f64);
  double sum = 0;
  for (const double value : values.data<double>()) sum += (value / unit) * (value / unit);
  return sum;
}

}  // namespace

Svd svd(const Tensor& matrix, std::optional<std::size_t> rank) {
  if (matrix.rank() != 2) fail_data("expected a matrix, found shape " + to_string(matrix.shape()));
  const std::size_t m = matrix.shape()[0], n = matrix.shape()[1], max_rank = std::min(m, n);
  if (rank.value_or(0) > max_rank)
    fail_data("rank " + std::to_string(*rank) + " exceeds " + std::to_string(max_rank) +
              ", the maximum for a matrix of shape " + to_string(matrix.shape()));
  // LAPACK counts in 32 bits, and its workspace is up to about 7 min(m, n)^2 elements.
  if (std::max(m, n) > 1u << 30 || max_rank > 1u << 14)
    fail_data("expected a matrix of at most 2^30 by 2^14, found shape " +
              to_string(matrix.shape()));

  const std::size_t kept = rank.value_or(max_rank);
  const bool single = matrix.dtype() == DType::f32;
  const Tensor floats = single ? matrix : cast(matrix, DType::f64);
  if (max_rank == 0)
    return {Tensor(floats.dtype(), {m, 0}), Tensor(floats.dtype(), {0}),
            Tensor(floats.dtype(), {0, n})};
  if (single) {
    require_finite<float>(floats);
    return decompose<float>(floats, kept);
  }
  require_finite<double>(floats);
  return decompose<double>(floats, kept);
}

double explained_share(const Tensor& matrix, const Svd& svd) {
  const Tensor values = cast(matrix, DType::f64);
  double largest = 0;
  for (const double value : values.data<double>()) largest = std::max(largest, std::abs(value));
  return largest == 0 ? 1 : squares(svd.s, largest) / squares(matrix, largest);
}

}  // namespace attn
