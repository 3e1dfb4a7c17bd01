#include "attn/core/qk_norm.h"

#include <cmath>

namespace attn {
namespace {

double size_of_row(std::span<const double> row, QkNorm norm, double epsilon) {
  double squares = 0;
  for (const double x : row) squares += x * x;
  if (norm == QkNorm::l2) return std::max(std::sqrt(squares), epsilon > 0 ? epsilon : 1e-12);
  return std::sqrt(squares / static_cast<double>(row.size()) + (epsilon > 0 ? epsilon : 1e-6));
}

}  // namespace

Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight, QkNorm norm,
                     double epsilon, DType compute) {
  Tensor normalised = cast(x, DType::f64);
  const std::size_t D = x.shape().back();
  if (x.size() == 0) return cast(normalised, compute);
  const Tensor factors =
      weight ? cast(*weight, DType::f64) : Tensor::of<double>({D}, std::vector<double>(D, 1));
  const auto w = factors.data<double>();
  const auto out = normalised.mutable_data<double>();
  for (std::size_t from = 0; from < out.size(); from += D) {
    const double size = size_of_row(out.subspan(from, D), norm, epsilon);
    for (std::size_t d = 0; d < D; ++d) out[from + d] = out[from + d] / size * w[d];
  }
  return cast(normalised, compute);
}

}  // namespace attn
