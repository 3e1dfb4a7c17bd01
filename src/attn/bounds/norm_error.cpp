#include "attn/bounds/norm_error.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "attn/attention/qk_norm.h"

namespace attn {
namespace {

/// How many columns the square of the norm is a mean of; 1 if it is a sum.
double terms_of(std::size_t columns, const Options& options) {
  return options.qk_norm == QkNorm::l2 ? 1 : static_cast<double>(columns);
}

/// Bound of |1 / n' - 1 / n|, where n' is a computed norm. Epsilon limits 1 / n'.
double error_of_inverse(const TokenNorm& token, const Options& options) {
  const double epsilon = norm_epsilon(options), inverse = 1 / token.norm;
  const double least = options.qk_norm == QkNorm::l2 ? epsilon : std::sqrt(epsilon);
  const double above =
      token.relative < 1 ? inverse * token.relative / (1 - token.relative) : 1 / least - inverse;
  return std::max(std::min(above, 1 / least - inverse), inverse * std::min(1.0, token.relative));
}

/// The columns of one token on the way back through a norm, and bounds of their errors.
struct TokenColumns {
  explicit TokenColumns(std::size_t count)
      : u(count), of_u(count), g(count), of_g(count), h(count), of_h(count) {}
  std::vector<double> u, of_u, g, of_g, h, of_h;
};

/// The errors of the derivatives by the columns of a token replace those of h.
void pass_norm(TokenColumns& at, const TokenNorm& token, const Options& options, double s) {
  const std::size_t count = at.u.size();
  const double terms = terms_of(count, options), of_sum = bounds::growth(count) * s;
  double mean = 0, of_mean = 0, sizes = 0, along = 0, of_along = 0, products = 0;
  for (std::size_t i = 0; i < count; ++i) {
    mean += at.h[i], of_mean += at.of_h[i], sizes += std::abs(at.h[i]);
    const double product = at.u[i] * at.h[i];
    along += product, products += std::abs(product);
    of_along += at.of_u[i] * std::abs(at.h[i]) + std::abs(at.u[i]) * at.of_h[i];
  }
  const bool is_centered = options.qk_norm == QkNorm::layer;
  mean = is_centered ? mean / terms : 0;
  of_mean = is_centered ? (of_mean + of_sum * sizes) / terms : 0;
  along /= terms;
  of_along = (of_along + (of_sum + s) * products) / terms;
  if (options.qk_norm == QkNorm::l2) {  // near epsilon, the norm is a constant or not
    const double beyond = token.norm - norm_epsilon(options);
    if (std::abs(beyond) <= token.relative * token.norm) of_along += std::abs(along);
    if (beyond <= 0) along = 0;
  }
  const double of_inverse = error_of_inverse(token, options), inverse = 1 / token.norm;
  for (std::size_t i = 0; i < count; ++i) {
    const double u = std::abs(at.u[i]), part = u * std::abs(along);
    const double error = at.of_h[i] + of_mean + at.of_u[i] * std::abs(along) +
                         (u + at.of_u[i]) * of_along +
                         3 * s * (std::abs(at.h[i]) + std::abs(mean) + part);
    at.of_h[i] = error * (inverse + of_inverse) +
                 std::abs(at.h[i] - mean - at.u[i] * along) * (of_inverse + 2 * s * inverse);
  }
}

}  // namespace

TokenNorm normalise_columns(std::span<double> x, std::span<double> errors, const Options& options,
                            double unit) {
  const double terms = terms_of(x.size(), options), sum = bounds::growth(x.size()) * unit;
  double of_mean = 0;
  if (options.qk_norm == QkNorm::layer)
    for (std::size_t i = 0; i < x.size(); ++i)
      of_mean += (errors[i] + sum * std::abs(x[i])) / terms;
  const double norm = normalise_columns(x, options);
  // The norm is that of x / sqrt(terms), which changes by at most the norm of the errors.
  double squares = 0;
  for (double& error : errors) error += of_mean, squares += error * error;
  const double relative = std::sqrt(squares / terms) / norm + sum / 2 + 6 * unit;
  const double largest = 2 * std::sqrt(static_cast<double>(x.size()) / terms);
  for (std::size_t i = 0; i < x.size(); ++i)
    errors[i] =
        relative < 1
            ? std::min((errors[i] / norm + std::abs(x[i]) * relative) / (1 - relative), largest)
            : largest;
  return {norm, relative};
}

NormDerivativeErrors norm_derivative_errors(const Bounded& g, const Bounded& x,
                                            const std::optional<Bounded>& weight,
                                            const std::optional<Bounded>& bias,
                                            const Options& options, const Precision& precision) {
  const std::size_t heads = x.value.shape()[1], N = x.value.shape()[2], D = x.value.shape()[3];
  const double s = precision.sum, r = precision.result;
  const auto like = [&](const std::optional<Bounded>& terms) {
    return Tensor(DType::f64, terms ? terms->value.shape() : Shape{1, D});
  };
  NormDerivativeErrors result{Tensor(DType::f64, x.value.shape()), like(weight), like(bias)};
  if (x.value.size() == 0) return result;
  const std::size_t together = options.qk_norm_axis == QkNormAxis::all ? heads : 1;
  const Tensor inputs = bounds::wide(x.value), given = bounds::wide(g.value);
  const Tensor factors = weight ? bounds::wide(weight->value) : Tensor();
  Tensor sizes = result.weight, squares = result.weight, of_bias_sizes = result.bias;
  const auto of_x = result.x.mutable_data<double>();
  const auto of_weight = result.weight.mutable_data<double>();
  const auto of_bias = result.bias.mutable_data<double>();
  const auto size = sizes.mutable_data<double>(), square = squares.mutable_data<double>();
  const auto bias_size = of_bias_sizes.mutable_data<double>();
  TokenColumns columns(together * D);
  for (std::size_t head = 0; head < x.value.shape()[0] * heads; head += together)
    for (std::size_t n = 0; n < N; ++n) {
      const auto at = [&](std::size_t i) { return ((head + i / D) * N + n) * D + i % D; };
      for (std::size_t i = 0; i < columns.u.size(); ++i) {
        columns.u[i] = bounds::finite(inputs.data<double>()[at(i)]);
        columns.of_u[i] = x.error.data<double>()[at(i)];
      }
      const TokenNorm token = normalise_columns(columns.u, columns.of_u, options, s);
      for (std::size_t i = 0; i < columns.u.size(); ++i) {
        const std::size_t term = head % heads * D + i;
        const double of = bounds::finite(given.data<double>()[at(i)]);
        const double error = g.error.data<double>()[at(i)], u = columns.u[i];
        columns.of_u[i] += r * std::abs(u);
        const double product = std::abs(of * u);
        of_weight[term % of_weight.size()] += error * std::abs(u) + std::abs(of) * columns.of_u[i];
        size[term % size.size()] += product, square[term % square.size()] += product * product;
        of_bias[term % of_bias.size()] += error;
        bias_size[term % bias_size.size()] += std::abs(of);
        const double w = weight ? bounds::finite(factors.data<double>()[term % size.size()]) : 1;
        columns.h[i] = of * w;
        columns.of_h[i] = error * std::abs(w);
        if (weight)
          columns.of_h[i] += std::abs(of) * weight->error.data<double>()[term % size.size()] +
                             (s + r) * std::abs(columns.h[i]);
      }
      pass_norm(columns, token, options, s);
      for (std::size_t i = 0; i < columns.h.size(); ++i) of_x[at(i)] = columns.of_h[i];
    }
  const double of_sum = bounds::growth(x.value.size() / size.size()) * s;
  for (std::size_t i = 0; i < size.size(); ++i)
    of_weight[i] +=
        of_sum * size[i] + r * std::min(size[i], bounds::kSpread * std::sqrt(square[i]));
  for (std::size_t i = 0; i < bias_size.size(); ++i)
    of_bias[i] += bounds::growth(x.value.size() / bias_size.size()) * s * bias_size[i];
  return result;
}

}  // namespace attn
