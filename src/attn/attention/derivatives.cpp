#include "attn/attention/derivatives.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/attention/gemm.h"
#include "attn/attention/qk_norm.h"
#include "attn/attention/weighted_values.h"
#include "attn/problem/position_bias.h"
#include "attn/problem/token_positions.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/transposed.h"

namespace attn {

Tensor chained(Tensor g, const Tensor& factors) {
  const auto f = factors.data<double>();
  std::size_t i = 0;
  for (double& value : g.mutable_data<double>()) value = chained(value, f[i++]);
  return g;
}

Tensor sum_of(Tensor a, const Tensor& b) {
  const auto added = b.data<double>();
  std::size_t i = 0;
  for (double& value : a.mutable_data<double>()) value += added[i++];
  return a;
}

namespace {

/// x (..., N, D) with N rows instead.
Shape with_rows(const Tensor& x, std::size_t N) {
  Shape shape = x.shape();
  shape[shape.size() - 2] = N;
  return shape;
}

/// chained_product() or transposed_product() of g, (m, k) or (k, m), where x (k, n) holds NaN or
/// infinity.
Tensor product_skipping_zeros(const Tensor& g, const Tensor& x, bool transposed) {
  const Shape &a = g.shape(), &b = x.shape();
  const std::size_t k = b[b.size() - 2], n = b.back();
  const std::size_t m = a[a.size() - (transposed ? 1 : 2)];
  Shape shape(a.begin(), a.end() - 2);
  std::size_t matrices = 1;
  for (const std::size_t length : shape) matrices *= length;
  shape.push_back(m), shape.push_back(n);
  Tensor result(DType::f64, shape);
  const auto factors = g.data<double>(), rows = x.data<double>();
  const auto out = result.mutable_data<double>();
  const std::size_t sharing = k * n == 0 ? 1 : matrices * k * n / rows.size();
  for (std::size_t matrix = 0; matrix < matrices; ++matrix)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t l = 0; l < k; ++l) {
        const double factor = factors[matrix * m * k + (transposed ? l * m + i : i * k + l)];
        if (factor == 0) continue;
        for (std::size_t j = 0; j < n; ++j)
          out[(matrix * m + i) * n + j] += factor * rows[(matrix / sharing * k + l) * n + j];
      }
  return result;
}

}  // namespace

Tensor chained_product(const Tensor& g, const Tensor& x) {
  return all_finite(x) ? matmul(g, x, Second::plain, "gradients")
                       : product_skipping_zeros(g, x, false);
}

Tensor transposed_product(const Tensor& g, const Tensor& x) {
  if (!all_finite(x)) return product_skipping_zeros(g, x, true);
  // As the transpose of x^T g, because g may be the larger matrix.
  return transposed_matrices(matmul(transposed_matrices(x), g, Second::plain, "gradients"));
}

Tensor sum_of_groups(const Tensor& x, std::size_t G) {
  const Shape& shape = x.shape();
  if (shape[1] == G) return x;
  const std::size_t matrix = shape[2] * shape[3];
  return sum_to(x.reshaped({shape[0], G, shape[1] / G, matrix}), {shape[0], G, 1, matrix})
      .reshaped({shape[0], G, shape[2], shape[3]});
}

Tensor scattered_rows(const Tensor& x, const std::vector<std::size_t>& rows, std::size_t N) {
  std::size_t in_place = 0;
  while (in_place < rows.size() && rows[in_place] == in_place) ++in_place;
  if (in_place == N && rows.size() == N) return x;
  Tensor result(DType::f64, with_rows(x, N));
  const std::size_t D = x.shape().back();
  const auto from = x.data<double>();
  const auto out = result.mutable_data<double>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t row = i / D, matrix = row / rows.size();
    out[(matrix * N + rows[row % rows.size()]) * D + i % D] += from[i];
  }
  return result;
}

Tensor positions_derivative(const Tensor& g, Position position) {
  const std::size_t M = g.shape()[2];
  const bool lacks_last =
      position.kind == Position::Kind::sinusoidal && is_left_out(position, M - 1, M);
  position.kind = Position::Kind::none;
  Tensor scaled = add_positions(g, position, DType::f64);
  if (lacks_last)
    for (std::size_t i = M - 1; i < g.size(); i += M) scaled.mutable_data<double>()[i] = 0;
  return scaled;
}

NormDerivatives norm_derivatives(const Tensor& g, const Tensor& x,
                                 const std::optional<Tensor>& weight,
                                 const std::optional<Tensor>& bias, const Options& options) {
  const std::size_t heads = x.shape()[1], N = x.shape()[2], D = x.shape()[3];
  const auto like = [&](const std::optional<Tensor>& terms) {
    return Tensor(DType::f64, terms ? terms->shape() : Shape{1, D});
  };
  NormDerivatives result{Tensor(DType::f64, x.shape()), like(weight), like(bias)};
  if (x.size() == 0) return result;
  const std::size_t together = options.qk_norm_axis == QkNormAxis::all ? heads : 1;
  const auto from = x.data<double>(), of_result = g.data<double>();
  const auto of_x = result.x.mutable_data<double>();
  const auto of_weight = result.weight.mutable_data<double>();
  const auto of_bias = result.bias.mutable_data<double>();
  std::vector<double> u(together * D), h(together * D);
  for (std::size_t head = 0; head < x.shape()[0] * heads; head += together)
    for (std::size_t n = 0; n < N; ++n) {
      const auto at = [&](std::size_t i) { return ((head + i / D) * N + n) * D + i % D; };
      for (std::size_t i = 0; i < u.size(); ++i) u[i] = from[at(i)];
      const double norm = normalise_columns(u, options);
      double sum = 0, along = 0;  // of h, and of u h
      for (std::size_t i = 0; i < u.size(); ++i) {
        const std::size_t term = head % heads * D + i;
        h[i] = of_result[at(i)];
        of_weight[term % of_weight.size()] += chained(h[i], u[i]);
        of_bias[term % of_bias.size()] += h[i];
        if (weight) h[i] = chained(h[i], weight->data<double>()[term % of_weight.size()]);
        sum += h[i];
        along += chained(h[i], u[i]);
      }
      const auto count = static_cast<double>(u.size());
      const double mean = options.qk_norm == QkNorm::layer ? sum / count : 0;
      if (options.qk_norm != QkNorm::l2)
        along /= count;
      else if (norm <= norm_epsilon(options))
        along = 0;  // the norm is a constant
      for (std::size_t i = 0; i < u.size(); ++i)
        of_x[at(i)] = chained(h[i] - mean - chained(along, u[i]), 1 / norm);
    }
  return result;
}

Angles angle_derivatives(const Tensor& g, const Tensor& x, const Angles& angles,
                         Rotary::Kind kind) {
  Angles result{Tensor(DType::f64, angles.cos.shape()), Tensor(DType::f64, angles.cos.shape())};
  const auto of_result = g.data<double>(), from = x.data<double>();
  const auto cos = result.cos.mutable_data<double>(), sin = result.sin.mutable_data<double>();
  each_rotated_pair(x.shape(), angles, kind, [&](std::size_t i, std::size_t j, std::size_t angle) {
    cos[angle] += chained(of_result[i], from[i]) + chained(of_result[j], from[j]);
    sin[angle] += chained(of_result[j], from[i]) - chained(of_result[i], from[j]);
  });
  return result;
}

Tensor table_derivative(const Tensor& g, const Tensor& positions, const Shape& shape) {
  if (shape.size() == 3) return sum_to(g, shape);
  Tensor result(DType::f64, shape);
  const auto out = result.mutable_data<double>();
  const auto from = g.data<double>();
  const auto at = positions.data<std::int64_t>();
  for (std::size_t i = 0; i < from.size(); ++i)
    out[static_cast<std::size_t>(at[i / shape[1]]) * shape[1] + i % shape[1]] += from[i];
  return result;
}

Tensor bias_derivative(const Tensor& g, const GivenBias<Tensor>& bias, const Inputs& in) {
  const Shape& shape = bias.value.shape();
  Tensor result(DType::f64, shape);
  const auto out = result.mutable_data<double>();
  const auto from = g.data<double>();
  const std::size_t R = in.rows.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t j = i % in.S, r = i / in.S % R, h = i / in.S / R % in.H;
    const std::size_t b = i / in.S / R / in.H, query = in.rows[r];
    if (j >= in.P + in.N || from[i] == 0) continue;
    if (bias.input != Input::alibi_slopes && bias.input != Input::relative_bias) {
      const auto index = [&](std::size_t axis, std::size_t at) {
        return shape[axis] == 1 ? 0 : at;
      };
      out[((index(0, b) * shape[1] + index(1, h)) * shape[2] + index(2, query)) * shape[3] +
          index(3, j)] += from[i];
      continue;
    }
    const TokenPositions& tokens = in.token_positions[in.token_positions.size() == 1 ? 0 : b];
    const std::int64_t ahead = tokens.keys.position(j) - tokens.queries.position(query);
    if (bias.input == Input::alibi_slopes)
      out[(shape[0] == 1 ? 0 : b) * in.H + h] -= from[i] * std::fabs(static_cast<double>(ahead));
    else
      out[bucket_of(ahead, shape[0], in.options) * in.H + h] += from[i];
  }
  return result;
}

void add_bias_derivative(const Tensor& part, Input input, std::size_t b, std::size_t h,
                         const std::vector<std::size_t>* rows, double factor, Tensor& whole) {
  const Shape& shape = whole.shape();
  const auto from = part.data<double>();
  const auto to = whole.mutable_data<double>();
  if (input == Input::relative_bias) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i * shape[1] + h] += from[i];
    return;
  }
  const std::size_t head = (shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h);
  if (input == Input::alibi_slopes) {
    to[head] += from[0];
    return;
  }
  const std::size_t columns = part.shape()[3];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t row = rows != nullptr ? (*rows)[i / columns] : i / columns;
    const std::size_t in_head = (shape[2] == 1 ? 0 : row) * shape[3];
    to[head * shape[2] * shape[3] + in_head + (shape[3] == 1 ? 0 : i % columns)] +=
        factor * from[i];
  }
}

}  // namespace attn
