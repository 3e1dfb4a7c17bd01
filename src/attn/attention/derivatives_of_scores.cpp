// Derivatives of the score functions, and of the normalisers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "attn/attention/derivatives.h"
#include "attn/attention/gemm.h"
#include "attn/base/error.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

/// (..., N, D) -> (all rows, D).
Tensor rows_together(const Tensor& x) {
  const std::size_t D = x.shape().back();
  return x.reshaped({D == 0 ? 0 : x.size() / D, D});
}

/// The derivative of x W by W.
Tensor factor_derivative(const Tensor& g, const Tensor& x) {
  return transposed_matrices(transposed_product(rows_together(g), rows_together(x)));
}

ScoreDerivatives dot_derivatives(const Tensor& g, const Tensor& queries, const Tensor& keys) {
  return {
      chained_product(g, keys), sum_of_groups(transposed_product(g, queries), keys.shape()[1]), {}};
}

/// Of x / |x| of each row.
Tensor unit_derivative(const Tensor& g, const Tensor& x) {
  Options options;
  options.qk_norm = QkNorm::l2;
  options.qk_norm_epsilon = std::numeric_limits<double>::denorm_min();
  return norm_derivatives(g, x, std::nullopt, std::nullopt, options).x;
}

/// Calls f(q, k, g): the offsets of the rows of queries (B, H, L, A) and keys (B, G, S, A), and g,
/// for each pair in which g is not 0.
template <class F>
void each_pair(const Tensor& g, const Tensor& queries, const Tensor& keys, F&& f) {
  const std::size_t L = queries.shape()[2], S = keys.shape()[2], A = queries.shape()[3];
  const std::size_t sharing = queries.shape()[1] / keys.shape()[1];
  std::size_t i = 0;
  for (const double value : g.data<double>()) {
    const std::size_t row = i / S, j = i % S;
    ++i;
    if (value != 0) f(row * A, (row / L / sharing * S + j) * A, value);
  }
}

ScoreDerivatives l2_derivatives(const Tensor& g, const Tensor& queries, const Tensor& keys) {
  ScoreDerivatives result{
      Tensor(DType::f64, queries.shape()), Tensor(DType::f64, keys.shape()), {}};
  const auto of_q = result.queries.mutable_data<double>();
  const auto of_k = result.keys.mutable_data<double>();
  const auto q = queries.data<double>(), k = keys.data<double>();
  each_pair(g, queries, keys, [&](std::size_t at_q, std::size_t at_k, double value) {
    for (std::size_t d = 0; d < queries.shape()[3]; ++d) {
      const double term = -2 * value * (q[at_q + d] - k[at_k + d]);
      of_q[at_q + d] += term;
      of_k[at_k + d] -= term;
    }
  });
  return result;
}

/// x W, or x without W.
Tensor weighted(const Tensor& x, const std::optional<Tensor>& W) {
  return W ? matmul(x, *W, Second::plain, "scores") : x;
}
Tensor weighted_transposed(const Tensor& g, const std::optional<Tensor>& W) {
  return W ? chained_product(g, transposed_matrices(*W)) : g;
}

/// The derivatives of g v / |v| by v and g.
void set_output_weights(const std::vector<double>& of_weights, const ScoreWeights<Tensor>& weights,
                        std::vector<double> v, ScoreWeights<Tensor>& result) {
  const std::size_t A = of_weights.size();
  result.v = Tensor::of<double>({A}, of_weights);
  if (!weights.g) return;
  double squares = 0, along = 0;
  for (const double x : v) squares += x * x;
  const double norm = std::sqrt(squares), scale = weights.g->data<double>()[0];
  for (std::size_t a = 0; a < A; ++a) along += of_weights[a] * v[a] / norm;
  for (std::size_t a = 0; a < A; ++a)
    result.v->mutable_data<double>()[a] = scale / norm * (of_weights[a] - along * v[a] / norm);
  result.g = Tensor(DType::f64, weights.g->shape());
  result.g->mutable_data<double>()[0] = along;
}

ScoreDerivatives additive_derivatives(const Tensor& g, const Tensor& queries, const Tensor& keys,
                                      const ScoreWeights<Tensor>& weights, Score kind) {
  const std::size_t D = queries.shape()[3], Dk = keys.shape()[3];
  const bool concat = kind == Score::concat;
  const std::optional<Tensor> of_queries = concat ? row_range(*weights.W, 0, D) : weights.W_Q;
  const std::optional<Tensor> of_keys = concat ? row_range(*weights.W, D, Dk) : weights.W_K;
  const Tensor left = weighted(queries, of_queries), right = weighted(keys, of_keys);
  const std::size_t A = left.shape()[3];
  std::vector<double> v(A, 1), sums(A, 0);
  if (weights.v) v.assign(weights.v->data<double>().begin(), weights.v->data<double>().end());
  double factor = 1;
  if (weights.g) {
    double squares = 0;
    for (const double x : v) squares += x * x;
    factor = weights.g->data<double>()[0] / std::sqrt(squares);
  }
  const Tensor b = weights.b ? *weights.b : Tensor(DType::f64, {A});
  Tensor of_left(DType::f64, left.shape()), of_right(DType::f64, right.shape());
  Tensor of_b(DType::f64, {A});
  const auto l = left.data<double>(), r = right.data<double>(), bias = b.data<double>();
  const auto to_l = of_left.mutable_data<double>(), to_r = of_right.mutable_data<double>();
  const auto to_b = of_b.mutable_data<double>();
  each_pair(g, left, right, [&](std::size_t q, std::size_t k, double value) {
    for (std::size_t a = 0; a < A; ++a) {
      const double t = std::tanh(l[q + a] + r[k + a] + bias[a]);
      const double term = value * factor * v[a] * (1 - t * t);
      to_l[q + a] += term;
      to_r[k + a] += term;
      to_b[a] += term;
      sums[a] += value * t;
    }
  });
  ScoreDerivatives result{
      weighted_transposed(of_left, of_queries), weighted_transposed(of_right, of_keys), {}};
  ScoreWeights<Tensor>& of_weights = result.weights;
  if (of_queries) of_weights.W_Q = factor_derivative(of_left, queries);
  if (of_keys) of_weights.W_K = factor_derivative(of_right, keys);
  if (concat)
    of_weights.W =
        append_rows(of_weights.W_Q->reshaped({1, 1, D, A}), of_weights.W_K->reshaped({1, 1, Dk, A}))
            .reshaped({D + Dk, A});
  of_weights.b = of_b;
  set_output_weights(sums, weights, v, of_weights);
  return result;
}

}  // namespace

ScoreDerivatives score_derivatives(const Tensor& g, const Tensor& queries, const Tensor& keys,
                                   const ScoreWeights<Tensor>& weights, Score kind) {
  switch (kind) {
    case Score::l2:
      return l2_derivatives(g, queries, keys);
    case Score::additive:
    case Score::concat:
      return additive_derivatives(g, queries, keys, weights, kind);
    case Score::general: {
      ScoreDerivatives result = dot_derivatives(g, weighted(queries, weights.W), keys);
      result.weights.W = factor_derivative(result.queries, queries);
      result.queries = weighted_transposed(result.queries, weights.W);
      return result;
    }
    case Score::cosine: {
      const ScoreDerivatives units =
          dot_derivatives(g, unit_rows(queries, DType::f64), unit_rows(keys, DType::f64));
      return {unit_derivative(units.queries, queries), unit_derivative(units.keys, keys), {}};
    }
    case Score::dot:
      break;
  }
  return dot_derivatives(g, queries, keys);
}

namespace {

/// Scores that are normalised together.
struct NormalisedGroup {
  std::size_t row, rows;    ///< of (B, H, R)
  std::size_t from, count;  ///< of (B, H, R, S)
  std::size_t head;
};

/// Calls f(group) for each group with a score or a sink.
template <class F>
void each_group(const Normalised& n, const Options& options, F&& f) {
  const Shape& shape = n.masked.shape();
  const std::size_t H = shape[1], L = shape[2], S = shape[3];
  const auto visible = n.visible.keys.data<bool>(), padded = n.visible.padding.data<bool>();
  const std::size_t rows = options.softmax_axis == SoftmaxAxis::all ? L : 1;
  for (std::size_t row = 0; row < shape[0] * H * L; row += rows) {
    const auto seen = visible.subspan(row * S, rows * S);
    const bool is_padded = padded[row / L / H * L + row % L];
    if (std::find(seen.begin(), seen.end(), true) == seen.end() && (!n.sinks || is_padded))
      continue;
    f(NormalisedGroup{row, rows, row * S, rows * S, row / L % H});
  }
}

/// Requires that the scores that top_k selects exceed all others.
void require_selection(std::span<const double> x, std::span<const bool> visible, std::size_t k) {
  std::vector<double> seen;
  for (std::size_t j = 0; j < x.size(); ++j)
    if (visible[j]) seen.push_back(x[j]);
  if (seen.size() <= k) return;
  std::sort(seen.begin(), seen.end(), std::greater<>());
  if (k > 0 && seen[k - 1] == seen[k])
    fail_data({.subject = "normaliser",
               .message = "top_k has no derivative where the last selected "
                          "score equals the next one"});
}

/// The derivative by the scores of a group, whose weights are w, before the temperature: `out`.
void derive_group(std::span<const double> g, std::span<const double> w,
                  std::span<const bool> visible, Normaliser normaliser, std::span<double> out) {
  double sum = 0, total = 0;  // for a normaliser whose derivative is q (g - sum q g / sum q)
  const auto q = [&](std::size_t j) {
    if (normaliser == Normaliser::sparsemax) return w[j] > 0 ? 1.0 : 0.0;
    return normaliser == Normaliser::entmax15 ? std::sqrt(w[j]) : w[j];
  };
  for (std::size_t j = 0; j < g.size(); ++j) {
    if (!visible[j]) continue;
    if (normaliser == Normaliser::none) out[j] = g[j];
    if (normaliser == Normaliser::sigmoid) out[j] = chained(g[j], w[j] * (1 - w[j]));
    sum += chained(g[j], q(j));
    total += q(j);
  }
  if (normaliser == Normaliser::none || normaliser == Normaliser::sigmoid) return;
  // Weights of the softmax may sum to less than 1, because of a sink.
  const bool has_own_sum =
      normaliser == Normaliser::sparsemax || normaliser == Normaliser::entmax15;
  if (has_own_sum) sum /= total;
  for (std::size_t j = 0; j < g.size(); ++j)
    if (visible[j]) out[j] = q(j) * (g[j] - sum);
}

}  // namespace

NormaliserDerivatives weights_derivatives(const Tensor& g, const Normalised& n,
                                          const Options& options) {
  NormaliserDerivatives result{Tensor(DType::f64, n.masked.shape()),
                               Tensor(DType::f64, {n.masked.shape()[1]})};
  const auto of_masked = result.masked.mutable_data<double>();
  const auto of_sinks = result.sinks.mutable_data<double>();
  const auto from = g.data<double>(), w = n.weights.data<double>(), x = n.masked.data<double>();
  const auto lse = n.logsumexp.data<double>();
  const auto visible = n.visible.keys.data<bool>();
  each_group(n, options, [&](const NormalisedGroup& group) {
    const auto part = [&](auto all) { return all.subspan(group.from, group.count); };
    if (options.normaliser == Normaliser::top_k)
      require_selection(part(x), part(visible), static_cast<std::size_t>(options.top_k));
    derive_group(part(from), part(w), part(visible), options.normaliser, part(of_masked));
    for (double& value : part(of_masked)) value /= options.temperature;
    if (!n.sinks) return;
    double sum = 0;
    for (std::size_t j = group.from; j < group.from + group.count; ++j)
      if (visible[j]) sum += chained(from[j], w[j]);
    of_sinks[group.head] -= sum * std::exp(n.sinks->data<double>()[group.head] - lse[group.row]);
  });
  return result;
}

NormaliserDerivatives logsumexp_derivatives(const Tensor& g, const Normalised& n,
                                            const Options& options) {
  NormaliserDerivatives result{Tensor(DType::f64, n.masked.shape()),
                               Tensor(DType::f64, {n.masked.shape()[1]})};
  const auto of_masked = result.masked.mutable_data<double>();
  const auto of_sinks = result.sinks.mutable_data<double>();
  const auto from = g.data<double>(), x = n.masked.data<double>();
  const auto lse = n.logsumexp.data<double>();
  const auto visible = n.visible.keys.data<bool>();
  each_group(n, options, [&](const NormalisedGroup& group) {
    double sum = 0;  // the rows of a group have the same logsumexp
    for (std::size_t i = 0; i < group.rows; ++i) sum += from[group.row + i];
    for (std::size_t j = group.from; j < group.from + group.count; ++j)
      if (visible[j])
        of_masked[j] = chained(sum, std::exp(x[j] / options.temperature - lse[group.row])) /
                       options.temperature;
    if (n.sinks)
      of_sinks[group.head] +=
          chained(sum, std::exp(n.sinks->data<double>()[group.head] - lse[group.row]));
  });
  return result;
}

}  // namespace attn
