#include "attn/stats/rollout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "attn/attention/gemm.h"
#include "attn/base/error.h"
#include "attn/stats/head_statistics.h"

namespace attn {
namespace {

/// (B, H, L, L) -> (B, L, L), f64.
Tensor fused_heads(const Tensor& weights, HeadFusion fusion) {
  const Shape& s = weights.shape();
  Tensor fused(DType::f64, {s[0], s[2], s[3]});
  const auto out = fused.mutable_data<double>();
  const std::size_t size = s[2] * s[3];
  for (std::size_t b = 0; b < s[0]; ++b)
    for (std::size_t h = 0; h < s[1]; ++h) {
      const Tensor head = cast(weights.at(b).at(h), DType::f64);
      const auto from = head.data<double>();
      for (std::size_t i = 0; i < s[2]; ++i) require_no_negative(from.subspan(i * s[3], s[3]), i);
      for (std::size_t i = 0; i < size; ++i) {
        double& to = out[b * size + i];
        if (h == 0)
          to = from[i];
        else if (fusion == HeadFusion::mean || std::isnan(from[i]))
          to += from[i];
        else if (fusion == HeadFusion::max)
          to = to < from[i] ? from[i] : to;
        else
          to = to > from[i] ? from[i] : to;
      }
    }
  if (fusion == HeadFusion::mean)
    for (double& x : out) x /= static_cast<double>(s[1]);
  return fused;
}

/// Sets the smallest elements to 0, but never the first one. Of equal elements, the first are set.
void discard_smallest(std::span<double> elements, double share) {
  const auto count = static_cast<std::size_t>(static_cast<double>(elements.size()) * share);
  if (count == 0) return;
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    return std::isnan(elements[i]) ? std::numeric_limits<double>::infinity() : elements[i];
  };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count - 1),
                   order.end(), [&](std::size_t a, std::size_t b) {
                     const double x = key(a), y = key(b);
                     return x < y || (x == y && a < b);
                   });
  for (std::size_t i = 0; i < count; ++i)
    if (order[i] != 0) elements[order[i]] = 0;
}

/// Adds the residual connection to a matrix (L, L) and divides each row by its sum.
void add_residual(std::span<double> matrix, std::size_t L, double residual) {
  for (std::size_t i = 0; i < L; ++i) {
    const std::span<double> row = matrix.subspan(i * L, L);
    for (double& x : row) x *= 1 - residual;
    row[i] += residual;
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    if (sum == 0) continue;
    for (double& x : row) x /= sum;
  }
}

}  // namespace

void Rollout::add_layer(const Tensor& weights) {
  const Shape& s = weights.shape();
  if (s[2] != s[3] || s[1] == 0)
    fail_data({.expected = "weights of self-attention, (..., L, L)", .found = to_string(s)});
  if (result_ && result_->shape() != Shape{s[0], s[2], s[3]})
    fail_data({.expected = "as many batch items and tokens as in the first layer, " +
                           to_string(result_->shape()),
               .found = to_string(s)});
  Tensor layer = fused_heads(weights, options_.heads);
  const std::size_t L = s[2];
  const auto matrices = layer.mutable_data<double>();
  for (std::size_t b = 0; b < s[0]; ++b) {
    const std::span<double> matrix = matrices.subspan(b * L * L, L * L);
    discard_smallest(matrix, options_.discard);
    add_residual(matrix, L, options_.residual);
  }
  result_ = result_ ? matmul(layer, *result_, Second::plain, "rollout") : layer;
}

}  // namespace attn
