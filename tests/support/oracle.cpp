#include "support/oracle.h"

#include <cmath>
#include <limits>

namespace oracle {
namespace {

using attn::Options;

const long double kInf = std::numeric_limits<long double>::infinity();

long double largest(const std::vector<long double>& values) {
  long double most = 0;
  for (const long double value : values)
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  return most;
}

/// Query i of problem, key j, in batch b and head h.
struct Pair {
  std::size_t b, h, i, j;
};

template <class F>
void for_each_pair(const Problem& p, F&& f) {
  for (std::size_t b = 0; b < p.B; ++b)
    for (std::size_t h = 0; h < p.H; ++h)
      for (const std::size_t i : p.rows)
        for (std::size_t j = 0; j < p.S; ++j) f(Pair{b, h, i, j});
}

bool is_visible(const Problem& p, const Pair& at) {
  const Options& options = p.options;
  const std::size_t flat = ((at.b * p.H + at.h) * p.L + at.i) * p.S + at.j;
  if (!p.visible.empty() && !p.visible[flat]) return false;
  if (!p.bias.empty() && p.bias[flat] == -kInf) return false;
  const long shift = options.alignment == attn::Alignment::bottom_right ? long(p.S) - long(p.L) : 0;
  const long centre = long(at.i) + shift, j = long(at.j);
  if (options.causal && j > centre) return false;
  if (options.window.left != -1 && j < centre - options.window.left) return false;
  if (options.window.right != -1 && j > centre + options.window.right) return false;
  return true;
}

Numbers scores(const Problem& p) {
  const bool cosine = p.options.score == attn::Score::cosine;
  Numbers result;
  for_each_pair(p, [&](const Pair& at) {
    const long double* q = p.Q.values.data() + ((at.b * p.H + at.h) * p.L + at.i) * p.D;
    const long double* k =
        p.K.values.data() + ((at.b * p.G + at.h / (p.H / p.G)) * p.S + at.j) * p.D;
    long double dot = 0, magnitude = 0, handed_on = 0, qq = 0, kk = 0;
    for (std::size_t d = 0; d < p.D; ++d) {
      dot += q[d] * k[d];
      magnitude += std::fabs(q[d] * k[d]);
      handed_on +=
          p.Q.error * std::fabs(k[d]) + p.K.error * std::fabs(q[d]) + p.Q.error * p.K.error;
      qq += q[d] * q[d];
      kk += k[d] * k[d];
    }
    const long double n = static_cast<long double>(p.D) + 2;
    const long double norms = cosine ? std::sqrt(qq) * std::sqrt(kk) : 1;
    long double error = p.exact_scores ? 0 : n * p.u * magnitude + handed_on;
    if (cosine)  // the relative errors of the norms: inherited, and of their own sums
      error = error / norms + (n + 4) * p.u +
              std::sqrt(static_cast<long double>(p.D)) *
                  (p.Q.error / std::sqrt(qq) + p.K.error / std::sqrt(kk));
    result.values.push_back(dot / norms);
    result.error = std::max(result.error, error);
  });
  return result;
}

Numbers scaled(const Problem& p, const Numbers& raw) {
  const attn::Scale& scale = p.options.scale;
  long double factor = 1;
  if (scale.kind == attn::Scale::Kind::number) factor = scale.number;
  if (scale.kind == attn::Scale::Kind::automatic && p.options.score == attn::Score::dot)
    factor = 1 / std::sqrt(static_cast<long double>(p.D));
  const long double c = p.options.softcap;
  Numbers result;
  for (const long double s : raw.values) {
    const long double x = factor * s;
    result.values.push_back(c > 0 ? c * std::tanh(x / c) : x);
  }
  // The slope of tanh is at most 1, so capping does not increase errors.
  const long double most = std::fabs(factor) * largest(raw.values);
  result.error = std::fabs(factor) * raw.error + 8 * p.u * most;
  return result;
}

Numbers masked(const Problem& p, const Numbers& scaled_scores) {
  Numbers result = scaled_scores;
  std::size_t at_result = 0;
  for_each_pair(p, [&](const Pair& at) {
    long double& x = result.values[at_result++];
    if (!p.bias.empty()) x += p.bias[((at.b * p.H + at.h) * p.L + at.i) * p.S + at.j];
    if (!is_visible(p, at)) x = -kInf;
  });
  if (!p.bias.empty()) result.error += 2 * p.u * (largest(result.values) + largest(p.bias));
  return result;
}

/// The weights and the logsumexp of `count` scores from `first`.
void normalise(const Problem& p, std::size_t first, std::size_t count, std::size_t rows,
               Solution& result) {
  const auto& x = result.masked_scores.values;
  long double sum = 0;
  for (std::size_t j = first; j < first + count; ++j) sum += std::exp(x[j]);
  for (std::size_t j = first; j < first + count; ++j) {
    long double weight = sum > 0 ? std::exp(x[j]) / sum : 0;
    if (sum == 0 && p.options.empty_rows == attn::EmptyRows::uniform)
      weight = 1 / static_cast<long double>(count);
    result.weights.values.push_back(weight);
  }
  for (std::size_t row = 0; row < rows; ++row) result.logsumexp.values.push_back(std::log(sum));
}

void normalise_all(const Problem& p, Solution& result) {
  const std::size_t R = p.rows.size();
  const bool all = p.options.softmax_axis == attn::SoftmaxAxis::all;
  const std::size_t groups = p.B * p.H * (all ? (R > 0 ? 1 : 0) : R), rows = all ? R : 1;
  for (std::size_t g = 0; g < groups; ++g) normalise(p, g * rows * p.S, rows * p.S, rows, result);
  const auto n = static_cast<long double>(rows * p.S) + 12;
  result.weights.error = std::expm1(2 * result.masked_scores.error) + n * p.u;
  result.logsumexp.error =
      result.masked_scores.error +
      p.u * (n + largest(result.masked_scores.values) + largest(result.logsumexp.values));
}

Numbers head_context(const Problem& p, const Numbers& weights) {
  Numbers result;
  const auto S = static_cast<long double>(p.S);
  for (std::size_t row = 0; row < p.B * p.H * p.rows.size(); ++row) {
    const std::size_t bh = row / p.rows.size(), b = bh / p.H, h = bh % p.H;
    for (std::size_t d = 0; d < p.Dv; ++d) {
      long double sum = 0, magnitude = 0;
      for (std::size_t j = 0; j < p.S; ++j) {
        const long double v = p.V.values[((b * p.G + h / (p.H / p.G)) * p.S + j) * p.Dv + d];
        sum += weights.values[row * p.S + j] * v;
        magnitude += std::fabs(v);
      }
      result.values.push_back(sum);
      const long double error = (weights.error + (S + 2) * p.u) * magnitude + p.V.error;
      result.error = std::max(result.error, error);
    }
  }
  return result;
}

}  // namespace

Solution solve(const Problem& problem) {
  Solution result;
  result.scores = scores(problem);
  result.scaled_scores = scaled(problem, result.scores);
  result.masked_scores = masked(problem, result.scaled_scores);
  normalise_all(problem, result);
  result.head_context = head_context(problem, result.weights);
  return result;
}

Expected expected(const Numbers& numbers, const attn::Shape& shape, long double result_u) {
  Expected result{shape, {}, 0};
  for (const long double value : numbers.values)
    result.values.push_back(static_cast<double>(value));
  const long double rounding = result_u * (largest(numbers.values) + numbers.error);
  result.bound = static_cast<double>(numbers.error + rounding);
  return result;
}

}  // namespace oracle
