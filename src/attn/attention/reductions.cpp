#include "attn/attention/reductions.h"

#include <type_traits>

namespace attn {
namespace {

/// x (outer, middle, inner) summed over the middle and divided by `by`; `shape` is that of the
/// other axes.
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

RowQuery RowQueries::of(std::size_t row) const {
  const std::size_t count = in_.rows.size(), b = row / count / in_.H;
  RowQuery query{.position = positions_.of(b, row % count), .keys = positions_.keys()};
  if (in_[Input::token_ids]) {
    const std::size_t from = in_[Input::token_ids]->shape()[0] == 1 ? 0 : b * query.keys;
    query.token_ids = in_[Input::token_ids]->data<std::int64_t>().data() + from;
  }
  return query;
}

Tensor reduce_rows(const RowStatistic& statistic, const Tensor& matrix, const RowQueries& queries) {
  const Shape& s = matrix.shape();
  Tensor reduced(matrix.dtype(), {s[0], s[1], s[2]});
  visit(matrix.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      const auto rows = matrix.data<T>();
      const auto results = reduced.mutable_data<T>();
      for (std::size_t i = 0; i < results.size(); ++i)
        results[i] = static_cast<T>(statistic.formula(rows.subspan(i * s[3], s[3]), queries.of(i)));
    }
  });
  return reduced;
}

}  // namespace attn
