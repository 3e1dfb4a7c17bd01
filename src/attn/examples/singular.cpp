#include "attn/examples/singular.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace {

/// +1 or -1 for each vector, whichever brings it closer to the printed one.
std::vector<double> nearest_signs(const Value& value, const std::vector<double>& printed) {
  const Tensor numbers = cast(value.tensor, DType::f64);
  const std::size_t columns = value.tensor.shape()[1];
  std::vector<double> alignment(value.singular->determined.size());
  for (std::size_t i = 0; i < printed.size(); ++i)
    alignment[value.singular->axis == 0 ? i / columns : i % columns] +=
        numbers.data<double>()[i] * printed[i];
  for (double& sum : alignment) sum = sum < 0 ? -1 : 1;
  return alignment;
}

/// The largest element of |U^T U - I| and |Vt Vt^T - I|.
double orthogonality_error(const Svd& svd) {
  const Tensor U = cast(svd.U, DType::f64), Vt = cast(svd.Vt, DType::f64);
  const std::size_t k = svd.s.size(), m = U.shape()[0], n = Vt.shape()[1];
  double worst = 0;
  for (std::size_t p = 0; p < k; ++p)
    for (std::size_t q = 0; q < k; ++q) {
      double u = p == q ? -1 : 0, v = u;
      for (std::size_t i = 0; i < m; ++i)
        u += U.data<double>()[i * k + p] * U.data<double>()[i * k + q];
      for (std::size_t j = 0; j < n; ++j)
        v += Vt.data<double>()[p * n + j] * Vt.data<double>()[q * n + j];
      worst = std::max({worst, std::abs(u), std::abs(v)});
    }
  return worst;
}

/// The Frobenius norm of A - U diag(s) Vt.
double residual(const Decomposition& decomposition) {
  const Tensor A = cast(decomposition.matrix, DType::f64);
  const Tensor U = cast(decomposition.svd.U, DType::f64), s = cast(decomposition.svd.s, DType::f64),
               Vt = cast(decomposition.svd.Vt, DType::f64);
  const std::size_t k = s.size(), n = Vt.shape()[1];
  double squares = 0;
  for (std::size_t at = 0; at < A.size(); ++at) {
    double rest = A.data<double>()[at];
    for (std::size_t p = 0; p < k; ++p)
      rest -= U.data<double>()[at / n * k + p] * s.data<double>()[p] *
              Vt.data<double>()[p * n + at % n];
    squares += rest * rest;
  }
  return std::sqrt(squares);
}

/// |values[first:]|
double norm(const Tensor& values, std::size_t first) {
  const Tensor numbers = cast(values, DType::f64);
  double squares = 0;
  for (const double value : numbers.data<double>().subspan(first)) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

Tensor with_printed_signs(const Value& value, const std::vector<double>& printed,
                          ChosenSigns& signs) {
  const auto& [recipe, axis, determined] = *value.singular;
  const auto sign = signs.try_emplace(recipe, nearest_signs(value, printed)).first->second;
  Tensor result = cast(value.tensor, DType::f64);
  const auto numbers = result.mutable_data<double>();
  const std::size_t columns = value.tensor.shape()[1];
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t k = axis == 0 ? i / columns : i % columns;
    numbers[i] = determined[k] ? sign[k] * numbers[i] : printed[i];
  }
  return cast(result, value.tensor.dtype());
}

std::string find_flaw(const Decomposition& decomposition) {
  const bool single = decomposition.svd.s.dtype() == DType::f32;
  const double epsilon =
      single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const Shape& shape = decomposition.matrix.shape();
  const double bound = 20 * epsilon * static_cast<double>(shape[0] + shape[1]);

  if (!(orthogonality_error(decomposition.svd) <= bound))
    return "the singular vectors are not orthonormal";
  const double all = norm(decomposition.all_s, 0);
  const double cut = norm(decomposition.all_s, decomposition.svd.s.size());
  if (!(std::abs(residual(decomposition) - cut) <= bound * all))
    return "U diag(s) Vt is not the matrix";
  return "";
}

}  // namespace attn
