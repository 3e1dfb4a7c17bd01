#include "attn/attention/qk_norm.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace attn {

double norm_epsilon(const Options& options) {
  if (options.qk_norm_epsilon > 0) return options.qk_norm_epsilon;
  if (options.qk_norm == QkNorm::l2) return 1e-12;
  return options.qk_norm == QkNorm::layer ? 1e-5 : 1e-6;
}

namespace {

/// The elements of `given` (heads or 1, D) as (heads, D), or `value` everywhere.
std::vector<double> norm_terms(const std::optional<Tensor>& given, std::size_t count,
                               double value) {
  std::vector<double> terms(count, value);
  if (!given) return terms;
  const Tensor numbers = cast(*given, DType::f64);
  const auto from = numbers.data<double>();
  for (std::size_t i = 0; i < count; ++i) terms[i] = from[i % from.size()];
  return terms;
}

}  // namespace

Options with_input_norm(const Options& options) {
  Options norm;
  norm.qk_norm = options.input_norm;
  norm.qk_norm_epsilon = options.input_norm_epsilon;
  return norm;
}

double normalise_columns(std::span<double> x, const Options& options) {
  const auto count = static_cast<double>(x.size());
  if (options.qk_norm == QkNorm::layer) {
    double sum = 0;
    for (const double value : x) sum += value;
    for (double& value : x) value -= sum / count;
  }
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double epsilon = norm_epsilon(options);
  const double norm = options.qk_norm == QkNorm::l2 ? std::max(std::sqrt(squares), epsilon)
                                                    : std::sqrt(squares / count + epsilon);
  for (double& value : x) value /= norm;
  return norm;
}

Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                     const std::optional<Tensor>& bias, const Options& options, DType compute) {
  Tensor normalised = cast(x, DType::f64);
  const std::size_t heads = x.shape()[1], N = x.shape()[2], D = x.shape()[3];
  if (x.size() == 0) return cast(normalised, compute);
  const std::vector<double> factors = norm_terms(weight, heads * D, 1);
  // x + -0.0 is x even for -0.0.
  const std::vector<double> summands = norm_terms(bias, heads * D, -0.0);
  const std::size_t together = options.qk_norm_axis == QkNormAxis::all ? heads : 1;
  std::vector<double> token(together * D);
  double* const out = normalised.mutable_data<double>().data();
  for (std::size_t head = 0; head < x.shape()[0] * heads; head += together)
    for (std::size_t n = 0; n < N; ++n) {
      double* const first = out + (head * N + n) * D;  // those of other heads follow N * D apart
      for (std::size_t i = 0; i < together; ++i)
        std::copy_n(first + i * N * D, D, token.data() + i * D);
      normalise_columns(token, options);
      const std::size_t terms = head % heads * D;
      for (std::size_t i = 0; i < token.size(); ++i)
        first[i / D * N * D + i % D] = token[i] * factors[terms + i] + summands[terms + i];
    }
  return cast(normalised, compute);
}

}  // namespace attn
