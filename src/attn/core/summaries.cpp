#include "attn/core/summaries.h"

#include <cmath>
#include <limits>

namespace attn {
namespace {

/// x (outer, middle, inner) added up over the middle, divided by `by`: `shape` has the other axes.
Tensor sum_over(const Tensor& x, std::size_t outer, std::size_t middle, const Shape& shape,
                double by) {
  Tensor sums(DType::f64, shape);
  const auto to = sums.mutable_data<double>();
  const std::size_t inner = outer == 0 ? 0 : to.size() / outer;
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const auto from = x.data<T>();
    for (std::size_t o = 0; o < outer; ++o)
      for (std::size_t m = 0; m < middle; ++m)
        for (std::size_t i = 0; i < inner; ++i)
          to[o * inner + i] += static_cast<double>(from[(o * middle + m) * inner + i]) / by;
  });
  return cast(sums, x.dtype());
}

}  // namespace

Tensor mean_over_heads(const Tensor& weights) {
  const Shape& s = weights.shape();
  return sum_over(weights, s[0], s[1], {s[0], s[2], s[3]}, static_cast<double>(s[1]));
}

Tensor sum_over_queries(const Tensor& weights) {
  const Shape& s = weights.shape();
  return sum_over(weights, s[0] * s[1], s[2], {s[0], s[1], s[3]}, 1);
}

Tensor largest_of_queries(const Tensor& scores) {
  const Shape& s = scores.shape();
  const Tensor doubles = cast(scores, DType::f64);
  Tensor largest(DType::f64, {s[0], s[1], s[2]});
  const double* x = doubles.data<double>().data();
  for (double& most : largest.mutable_data<double>()) {
    most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < s[3]; ++j, ++x)
      if (std::isnan(*x) || *x > most) most = *x;  // nothing is more than NaN
  }
  return cast(largest, scores.dtype());
}

}  // namespace attn
