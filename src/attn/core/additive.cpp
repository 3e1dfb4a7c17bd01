#include "attn/core/additive.h"

#include <cmath>
#include <cstring>

#include "attn/core/gemm.h"

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
  return W ? matmul(x, *W, Second::plain, "scores") : x;
}

/// v, or g v / |v|; ones where v is absent.
std::vector<double> output_weights(const Inputs& in, std::size_t A) {
  std::vector<double> v(A, 1);
  if (in.v_score) {
    const Tensor given = cast(*in.v_score, DType::f64);
    v.assign(given.data<double>().begin(), given.data<double>().end());
  }
  if (!in.g_score) return v;
  double squares = 0;
  for (const double x : v) squares += x * x;
  const double factor = cast(*in.g_score, DType::f64).data<double>()[0] / std::sqrt(squares);
  for (double& x : v) x *= factor;
  return v;
}

}  // namespace

Tensor additive_scores(const Tensor& queries, const Tensor& keys, const Inputs& in, Score kind) {
  const std::size_t D = queries.shape()[3], Dk = keys.shape()[3];
  const bool concat = kind == Score::concat;
  const Tensor left = through(queries, concat ? rows_of(*in.W_score, 0, D) : in.W_score_Q);
  const Tensor right = through(keys, concat ? rows_of(*in.W_score, D, Dk) : in.W_score_K);
  const std::vector<double> v = output_weights(in, left.shape()[3]);
  const Tensor b = in.b_score ? cast(*in.b_score, DType::f64) : Tensor(DType::f64, {v.size()});
  const auto bias = b.data<double>();
  return for_each_pair(left, right, in.compute,
                       [&](const double* q, const double* k, std::size_t A) {
                         double sum = 0;
                         for (std::size_t a = 0; a < A; ++a)
                           sum += v[a] * std::tanh(q[a] + k[a] + bias[a]);
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

}  // namespace attn
