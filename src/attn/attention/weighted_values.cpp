#include "attn/attention/weighted_values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "attn/attention/gemm.h"
#include "attn/base/float_arrays.h"
#include "attn/problem/output_table.h"

namespace attn {

bool all_finite(const Tensor& values) {
  return visit(values.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      return true;
    else
      return all_finite(values.data<T>());
  });
}

namespace {

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
  // A matrix product cannot skip hidden keys, but if all values are finite it need not.
  if (all_finite(values)) return matmul(weights, values, Second::plain, name_of(Output::context));
  const Tensor v = cast(values, weights.dtype());
  return weights.dtype() == DType::f64 ? weighted_visible<double>(weights, v, visible)
                                       : weighted_visible<float>(weights, v, visible);
}

namespace {

/// In descending order.
std::vector<double> descending(std::vector<double> x) {
  std::sort(x.begin(), x.end(), std::greater<>());
  return x;
}

/// x minus its largest element, so that no precision is lost if all are large.
std::vector<double> shifted(std::vector<double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  for (double& value : x) value -= largest;
  return x;
}

}  // namespace

std::vector<double> sparsemax(const std::vector<double>& scores) {
  std::vector<double> x = shifted(scores);
  double sum = 0, threshold = 0, count = 0;
  for (const double value :
       descending(x)) {  // the support is the longest prefix with this property
    if (1 + (count + 1) * value <= sum + value) break;
    sum += value;
    threshold = (sum - 1) / ++count;
  }
  for (double& value : x) value = std::max(value - threshold, 0.0);
  return x;
}

std::vector<double> entmax15(const std::vector<double>& scores) {
  std::vector<double> x = shifted(scores);
  for (double& value : x) value /= 2;
  double sum = 0, squares = 0, threshold = 0, count = 0;
  for (const double value : descending(x)) {
    if (value < -1) break;  // the threshold is at least -1; squares of huge values would overflow
    ++count;
    sum += value;
    squares += value * value;
    const double mean = sum / count;
    const double spread = (1 - (squares - sum * mean)) / count;  // of the root of sum (x - t)^2 = 1
    const double candidate = mean - std::sqrt(std::max(spread, 0.0));
    if (candidate > value) break;
    threshold = candidate;
  }
  for (double& value : x) value = std::pow(std::max(value - threshold, 0.0), 2);
  return x;
}

std::vector<double> hardmax(const std::vector<double>& x) {
  std::vector<double> weights(x.size(), 0);
  weights[static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin())] = 1;
  return weights;
}

std::vector<double> top_k_softmax(const std::vector<double>& x, std::size_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  order.resize(std::min(k, order.size()));
  std::vector<double> weights(x.size(), 0);
  double sum = 0;
  for (const std::size_t j : order) sum += weights[j] = std::exp(x[j] - x[order[0]]);
  for (const std::size_t j : order) weights[j] /= sum;
  return weights;
}

}  // namespace attn
