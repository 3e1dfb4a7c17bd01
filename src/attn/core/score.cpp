#include "attn/core/score.h"

#include <cmath>
#include <vector>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>

#include "attn/core/additive.h"
#include "attn/core/gemm.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

/// |x| of each row of (..., N, D), in float64.
std::vector<double> row_norms(const Tensor& tensor) {
  const std::size_t D = tensor.shape().back();
  const auto x = tensor.data<double>();
  std::vector<double> norms(tensor.shape()[0] * tensor.shape()[1] * tensor.shape()[2]);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    double squares = 0;
    for (std::size_t d = 0; d < D; ++d) squares += x[i * D + d] * x[i * D + d];
    norms[i] = std::sqrt(squares);
  }
  return norms;
}

/// Uses float64 throughout, as squares of float32 and integers may exceed their range.
Tensor cosines(const Tensor& queries, const Tensor& keys) {
  const std::size_t L = queries.shape()[2], S = keys.shape()[2];
  const std::size_t sharing = queries.shape()[1] / keys.shape()[1];
  const std::vector<double> q = row_norms(queries), k = row_norms(keys);
  Tensor cosines = matmul(queries, keys, Second::transposed, "scores");
  double* cosine = cosines.mutable_data<double>().data();
  for (std::size_t i = 0; i < q.size(); ++i)
    for (std::size_t j = 0; j < S; ++j) *cosine++ /= q[i] * k[i / L / sharing * S + j];
  return cosines;
}

/// Applies f to each element as a double.
template <class F>
Tensor map(const Tensor& x, DType dtype, F&& f) {
  Tensor y = cast(x, DType::f64);
  auto elements = mutable_array_of<double>(y);
  xt::noalias(elements) = f(elements);
  return cast(y, dtype);
}

Tensor scaled(const Tensor& scores, const ScoreScale& scale, DType compute) {
  if (scale.is_identity()) return cast(scores, compute);
  if (scale.root_of > 0)
    return map(scores, compute, [root = scale.divisor()](const auto& s) { return s / root; });
  return map(scores, compute, [=](const auto& s) { return scale.multiplier * s; });
}

}  // namespace

Tensor score(const Tensor& queries, const Tensor& keys, const Inputs& in, Score kind) {
  switch (kind) {
    case Score::l2:
      return negative_square_distances(queries, keys, in.compute);
    case Score::additive:
    case Score::concat:
      return additive_scores(queries, keys, in, kind);
    case Score::general:
      return matmul(matmul(queries, *in.W_score, Second::plain, "scores"), keys, Second::transposed,
                    "scores");
    case Score::cosine:
      return cast(cosines(cast(queries, DType::f64), cast(keys, DType::f64)), in.compute);
    case Score::dot:
      break;
  }
  return matmul(queries, keys, Second::transposed, "scores");
}

Tensor unit_rows(const Tensor& x, DType compute) {
  Tensor unit = cast(x, DType::f64);
  const std::vector<double> norms = row_norms(unit);
  double* element = unit.mutable_data<double>().data();
  for (const double norm : norms)
    for (std::size_t d = 0; d < x.shape().back(); ++d) *element++ /= norm;
  return cast(unit, compute);
}

Tensor scale_scores(const Tensor& scores, const Inputs& in, const Options& options) {
  const DType compute = in.compute;
  const Tensor s = scaled(scores, in.scale, compute);
  const double c = options.softcap_order == SoftcapOrder::before_mask ? options.softcap : 0;
  return c > 0 ? map(s, compute, [=](const auto& x) { return c * xt::tanh(x / c); }) : s;
}

}  // namespace attn
