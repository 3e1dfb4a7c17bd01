#include "attn/attention/query_scale.h"

#include <cmath>

namespace attn {

Tensor query_factors(const QueryScale& scale, const Tensor& positions) {
  const Shape& shape = positions.shape();
  Tensor factors(DType::f64, {shape[0], shape[1], 1});
  const auto first = static_cast<double>(scale.first), length = static_cast<double>(scale.length);
  double* out = factors.mutable_data<double>().data();
  for (const std::int64_t position : positions.data<std::int64_t>()) {
    const double step = std::floor((static_cast<double>(position) + first) / length);
    *out++ = 1 + scale.factor * std::log1p(step);
  }
  return factors;
}

Tensor times_by_position(const Tensor& x, const Tensor& factors, DType compute) {
  Tensor product = cast(x, DType::f64);
  const std::size_t heads = x.shape()[1], N = x.shape()[2], D = x.shape()[3];
  const auto each = factors.data<double>();
  const auto out = product.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / D;
    out[i] *= each[(row / N / heads * N + row % N) % each.size()];
  }
  return cast(product, compute);
}

}  // namespace attn
