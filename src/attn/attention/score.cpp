#include "attn/attention/score.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>

#include "attn/attention/gemm.h"
#include "attn/problem/output_table.h"
#include "attn/problem/threads.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

/// f(a, b, width), summed in doubles, for each row a of queries (B, H, L, A) and b of the keys
/// (B, G, S, A) of its group.
template <class F>
Tensor for_each_pair(const Tensor& queries, const Tensor& keys, DType compute, F&& f) {
  const Tensor left = cast(queries, DType::f64), right = cast(keys, DType::f64);
  const std::size_t L = left.shape()[2], S = right.shape()[2], A = left.shape()[3];
  const std::size_t sharing = left.shape()[1] / right.shape()[1];
  Tensor scores(DType::f64, {left.shape()[0], left.shape()[1], L, S});
  double* out = scores.mutable_data<double>().data();
  for (std::size_t row = 0; row < left.shape()[0] * left.shape()[1] * L; ++row)
    for (std::size_t j = 0; j < S; ++j)
      *out++ = f(left.data<double>().data() + row * A,
                 right.data<double>().data() + (row / L / sharing * S + j) * A, A);
  return cast(scores, compute);
}

/// The rows `first` to `first + count` of a matrix.
Tensor rows_of(const Tensor& matrix, std::size_t first, std::size_t count) {
  Tensor rows(matrix.dtype(), {count, matrix.shape()[1]});
  const std::size_t width = matrix.shape()[1] * size_of(matrix.dtype());
  if (rows.size() > 0) std::memcpy(rows.mutable_raw(), matrix.raw() + first * width, rows.bytes());
  return rows;
}

Tensor through(const Tensor& x, const std::optional<Tensor>& W) {
  return W ? matmul(x, *W, Second::plain, name_of(Output::scores)) : x;
}

}  // namespace

Tensor additive_factor(const Tensor& x, const ScoreWeights<Tensor>& weights, Score kind,
                       bool queries) {
  if (kind == Score::additive) return through(x, queries ? weights.W_Q : weights.W_K);
  const std::size_t width = x.shape()[3];
  return through(x, rows_of(*weights.W, queries ? 0 : weights.W->shape()[0] - width, width));
}

std::vector<double> output_weights(const ScoreWeights<Tensor>& weights, std::size_t A) {
  std::vector<double> v(A, 1);
  if (weights.v) {
    const Tensor given = cast(*weights.v, DType::f64);
    v.assign(given.data<double>().begin(), given.data<double>().end());
  }
  if (!weights.g) return v;
  double squares = 0;
  for (const double x : v) squares += x * x;
  const double factor = cast(*weights.g, DType::f64).data<double>()[0] / std::sqrt(squares);
  for (double& x : v) x *= factor;
  return v;
}

Tensor additive_scores(const Tensor& queries, const Tensor& keys,
                       const ScoreWeights<Tensor>& weights, Score kind, DType compute) {
  const Tensor left = additive_factor(queries, weights, kind, true);
  const Tensor right = additive_factor(keys, weights, kind, false);
  const std::vector<double> v = output_weights(weights, left.shape()[3]);
  const Tensor b = weights.b ? cast(*weights.b, DType::f64) : Tensor(DType::f64, {v.size()});
  const auto bias = b.data<double>();
  return for_each_pair(left, right, compute, [&](const double* q, const double* k, std::size_t A) {
    double sum = 0;
    for (std::size_t a = 0; a < A; ++a) sum += v[a] * std::tanh(q[a] + k[a] + bias[a]);
    return sum;
  });
}

Tensor negative_square_distances(const Tensor& queries, const Tensor& keys, DType compute) {
  return for_each_pair(queries, keys, compute, [](const double* q, const double* k, std::size_t D) {
    double sum = 0;
    for (std::size_t d = 0; d < D; ++d) sum -= (q[d] - k[d]) * (q[d] - k[d]);
    return sum;
  });
}

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
  Tensor cosines = matmul(queries, keys, Second::transposed, name_of(Output::scores));
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

Tensor rounded_to_bf16(const Tensor& x) {
  Tensor rounded = cast(x, DType::f32);
  for (float& element : rounded.mutable_data<float>())
    element = std::fabs(element) < std::numeric_limits<float>::min()
                  ? std::copysign(0.0F, element)
                  : static_cast<float>(BFloat16(static_cast<double>(element)));
  return rounded;
}

Tensor score(const Tensor& queries, const Tensor& keys, const ScoreWeights<Tensor>& weights,
             Score kind, DType compute, bool in_bf16) {
  if (in_bf16) {
    if (kind == Score::general)
      return score(rounded_to_bf16(through(queries, weights.W)), rounded_to_bf16(keys), {},
                   Score::dot, compute);
    const auto factor = [&](const Tensor& x) {
      return rounded_to_bf16(kind == Score::cosine ? unit_rows(x, compute) : x);
    };
    return score(factor(queries), factor(keys), {}, Score::dot, compute);
  }
  switch (kind) {
    case Score::l2:
      return negative_square_distances(queries, keys, compute);
    case Score::additive:
    case Score::concat:
      return additive_scores(queries, keys, weights, kind, compute);
    case Score::general:
      return matmul(matmul(queries, *weights.W, Second::plain, name_of(Output::scores)), keys,
                    Second::transposed, name_of(Output::scores));
    case Score::cosine:
      return cast(cosines(cast(queries, DType::f64), cast(keys, DType::f64)), compute);
    case Score::dot:
      break;
  }
  return matmul(queries, keys, Second::transposed, name_of(Output::scores));
}

namespace {

/// Rows [first, first + kRows) of (..., D), divided by their norms. The norms of several rows are
/// summed at the same time, as each addition waits for the one before.
template <std::size_t kRows, class From, class To>
void divide_by_norms(const From* x, std::size_t first, std::size_t D, To* unit) {
  x += first * D, unit += first * D;
  double norms[kRows] = {};
  for (std::size_t d = 0; d < D; ++d)
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto element = static_cast<double>(x[row * D + d]);
      norms[row] += element * element;
    }
  for (std::size_t row = 0; row < kRows; ++row) {
    const double norm = std::sqrt(norms[row]);
    for (std::size_t i = row * D; i < (row + 1) * D; ++i)
      unit[i] = static_cast<To>(static_cast<double>(x[i]) / norm);
  }
}

template <class From, class To>
Tensor unit_rows_as(const Tensor& x) {
  constexpr std::size_t kTogether = 4, kAtOnce = 512;  // rows
  Tensor unit(dtype_of<To>, x.shape());
  const std::size_t D = x.shape().back(), rows = D == 0 ? 0 : x.size() / D;
  const From* const from = x.data<From>().data();
  To* const to = unit.mutable_data<To>().data();
  run_in_parallel((rows + kAtOnce - 1) / kAtOnce, thread_count(), [&](std::size_t part) {
    const std::size_t end = std::min(rows, (part + 1) * kAtOnce);
    std::size_t row = part * kAtOnce;
    for (; row + kTogether <= end; row += kTogether) divide_by_norms<kTogether>(from, row, D, to);
    for (; row < end; ++row) divide_by_norms<1>(from, row, D, to);
  });
  return unit;
}

}  // namespace

Tensor unit_rows(const Tensor& x, DType compute) {
  if (x.dtype() == DType::f32 && compute == DType::f32) return unit_rows_as<float, float>(x);
  const Tensor wide = cast(x, DType::f64);
  return compute == DType::f32 ? unit_rows_as<double, float>(wide)
                               : unit_rows_as<double, double>(wide);
}

Tensor times_by_head(const Tensor& x, const Tensor& scale) {
  Tensor product = cast(x, DType::f64);
  const Tensor factors = cast(scale, DType::f64);
  const auto each = factors.data<double>();
  const auto out = product.mutable_data<double>();
  const std::size_t matrix = x.shape()[2] * x.shape()[3];
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= each[i / matrix % each.size()];
  return cast(product, x.dtype());
}

Tensor scale_scores(const Tensor& scores, const std::optional<Tensor>& head_scale,
                    const Inputs& in) {
  const DType compute = in.compute;
  Tensor s = scaled(scores, in.scale, compute);
  if (head_scale) s = times_by_head(s, *head_scale);
  const double c = in.options.softcap_order == SoftcapOrder::before_mask ? in.options.softcap : 0;
  return c > 0 ? map(s, compute, [=](const auto& x) { return c * xt::tanh(x / c); }) : s;
}

}  // namespace attn
