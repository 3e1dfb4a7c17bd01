#include "attn/core/sparse.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace attn {
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
