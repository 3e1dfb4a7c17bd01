#include "attn/core/weighted_values.h"

#include <algorithm>
#include <cmath>

#include "attn/core/gemm.h"

namespace attn {
namespace {

bool all_finite(const Tensor& values) {
  return visit(values.dtype(), [&]<class T>(Type<T>) {
    const auto data = values.data<T>();
    return std::all_of(data.begin(), data.end(),
                       [](T value) { return std::isfinite(static_cast<double>(value)); });
  });
}

template <class T>
Tensor weighted_visible(const Tensor& weights, const Tensor& values, const Tensor& visible) {
  const std::size_t L = weights.shape()[2], S = weights.shape()[3], Dv = values.shape()[3];
  const std::size_t sharing = weights.shape()[1] / values.shape()[1];
  Tensor context(dtype_of<T>, {weights.shape()[0], weights.shape()[1], L, Dv});
  const auto w = weights.data<T>(), v = values.data<T>();
  const auto is_visible = visible.data<bool>();
  const auto out = context.mutable_data<T>();
  for (std::size_t row = 0; row < w.size() / S; ++row)
    for (std::size_t j = 0; j < S; ++j) {
      const std::size_t at = row * S + j;
      if (!is_visible[at] && w[at] == 0) continue;
      const auto value = v.subspan((row / L / sharing * S + j) * Dv, Dv);
      for (std::size_t d = 0; d < Dv; ++d) out[row * Dv + d] += w[at] * value[d];
    }
  return context;
}

}  // namespace

Tensor weighted_values(const Tensor& weights, const Tensor& values, const Tensor& visible) {
  // A matrix product cannot skip a hidden key, and need not if every value is finite.
  if (all_finite(values)) return matmul(weights, values, Second::plain, "context");
  const Tensor v = cast(values, weights.dtype());
  return weights.dtype() == DType::f64 ? weighted_visible<double>(weights, v, visible)
                                       : weighted_visible<float>(weights, v, visible);
}

}  // namespace attn
