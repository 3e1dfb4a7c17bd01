// The reference values, and bounds for the rounding error of each output.
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "attn/kernel/reference.h"
#include "support/kernel_case.h"

namespace attn::test {
namespace {

using Real = long double;
namespace reference = kernel::reference;
constexpr Real kHidden = -std::numeric_limits<Real>::infinity();

template <class T>
constexpr double kRounding = std::numeric_limits<T>::epsilon() / 2;

/// A weight in bfloat16, of which the reference rounds none: what kernels round depends on the
/// maximum of the key block or of the row.
constexpr double kBf16Rounding = 0x1p-8;

/// The tolerances of one row of scores.
struct ScoreTolerances {
  double scores = 0, scaled = 0, masked = 0;
};

/// Bound for the rounding error of a score in T, proportional to the sum of the terms' magnitudes.
/// Queries and keys in float64 may be rounded to T first.
template <class T>
double sum_tolerance(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l, std::size_t j) {
  const auto& p = c.problem;
  double size = 0, of_terms = 0;
  for (std::size_t d = 0; d < p.D; ++d) {
    const double q = c.q.at(b, h, l, d), k = c.k.at(b, h / (p.H / p.G), j, d);
    size += std::abs(double(reference::term<Real>(p, d, q, k)));
    const double of_inputs = (std::abs(q) + std::abs(k)) * kRounding<T>;
    if (p.score == kernel::Score::distance)
      of_terms += of_inputs * (2 * std::abs(q - k) + of_inputs) + (q - k) * (q - k) * kRounding<T>;
    if (p.score == kernel::Score::tanh)  // its slope is at most 1, the sum has another rounding
      of_terms += std::abs(double(p.score_weights[d])) *
                  (2 * of_inputs + 16 * std::abs(std::tanh(q + k)) * kRounding<T>);
  }
  // Products of bfloat16 numbers, and their sums, may become 0 where they are subnormal.
  const bool may_flush = p.bf16_products || (p.q.holds_bf16 && p.k.holds_bf16);
  const double least = may_flush ? static_cast<double>(p.D) * std::numeric_limits<T>::min()
                                 : std::numeric_limits<T>::denorm_min();
  return of_terms + size * kRounding<T> * (static_cast<double>(p.D) + 2) + least;
}

/// The error that c tanh(x / c) adds, in a few rounded steps; its slope is at most 1.
template <class T>
double cap_tolerance(Real capped) {
  return std::abs(double(capped)) * kRounding<T> * 8;
}

/// The tolerances of the scores of a query and key j. `at` is their index in the outputs.
template <class T>
ScoreTolerances score_tolerances(const Case<T>& c, reference::Query query,
                                 const reference::Outputs<Real>& exact, std::size_t at,
                                 double dot_error, std::size_t j) {
  const auto& p = c.problem;
  const bool caps = p.softcap > 0;
  const auto size = [](Real x) { return std::abs(double(x)); };
  ScoreTolerances error;
  error.scores = dot_error;
  const double scale = double(p.scale) * reference::head_scale(p, query);
  error.scaled = dot_error * size(scale) + size(exact.scores[at] * scale) * kRounding<T>;
  if (p.head_scales) error.scaled *= 2;  // rounds queries times their head's scale
  if (caps && !p.softcap_last) error.scaled += cap_tolerance<T>(exact.scaled[at]);
  if (exact.masked[at] == kHidden) return error;
  error.masked = error.scaled;
  Real sum = exact.scaled[at];
  for (const double bias : reference::biases(p, query, j)) {
    sum += bias;
    error.masked += (size(sum) + size(bias)) * kRounding<T>;
  }
  if (caps && p.softcap_last) error.masked += cap_tolerance<T>(exact.masked[at]);
  return error;
}

/// How much the least of the largest visible scores that a query chooses exceeds the next one,
/// divided by the temperature.
template <class T>
double gap_of(const reference::Outputs<Real>& exact, reference::Query q,
              const kernel::AttentionProblem<T>& p) {
  std::vector<double> seen;
  const std::size_t row = (q.b * p.H + q.h) * p.L + q.l;
  const std::size_t chosen = p.normaliser == kernel::Normaliser::top_k ? p.top_k : 1;
  for (std::size_t j = 0; j < p.S; ++j)
    if (reference::is_visible(p, q, j))
      seen.push_back(static_cast<double>(exact.masked[row * p.S + j] / p.temperature));
  std::sort(seen.rbegin(), seen.rend());
  return seen.size() <= chosen ? std::numeric_limits<double>::infinity()
                               : seen[chosen - 1] - seen[chosen];
}

/// The error of a weight if those of the scores, and of a sum of numbers of at most 1, are at most
/// `error`.
double other_tolerance(kernel::Normaliser normaliser, double weight, double error, double gap) {
  switch (normaliser) {
    case kernel::Normaliser::sparsemax:
      return 4 * error;
    case kernel::Normaliser::entmax15:
      return 8 * error * (std::sqrt(weight) + error);
    case kernel::Normaliser::hardmax:
      return gap > 4 * error ? 0 : 1;
    case kernel::Normaliser::top_k:
      return gap > 4 * error ? weight * std::expm1(4 * error) + 1e-37 : 1;
    default:
      return error;
  }
}

/// Sets the tolerances of query l of head h of batch item b.
template <class T>
void set_tolerances(const Case<T>& c, const reference::Outputs<Real>& exact, std::size_t b,
                    std::size_t h, std::size_t l, Answer<double>& tolerance) {
  const auto& p = c.problem;
  const std::size_t row = (b * p.H + h) * p.L + l;
  const reference::Query query{b, h, l};
  const auto is_visible = [&](std::size_t j) { return reference::is_visible(p, query, j); };
  const T sink = reference::sink(p, query);
  double score_error = 0;  // the largest of the masked scores, by temperature
  double max = -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < p.S; ++j) {
    const std::size_t at = row * p.S + j;
    const ScoreTolerances error =
        score_tolerances(c, query, exact, at, sum_tolerance(c, b, h, l, j), j);
    tolerance.scores[at] = error.scores;
    tolerance.scaled[at] = error.scaled;
    tolerance.masked[at] = error.masked;
    if (!is_visible(j)) continue;
    const auto masked = static_cast<double>(exact.masked[at]);
    score_error = std::max(
        score_error, (error.masked + 2 * kRounding<T> * std::abs(masked)) / double(p.temperature));
    max = std::max(max, masked / double(p.temperature));
  }
  if (sink > -std::numeric_limits<T>::infinity()) {
    max = std::max(max, double(sink));
    score_error = std::max(score_error, 2 * kRounding<T> * std::abs(double(sink)));
  }
  // Sums run over at most one key block, then over the blocks.
  const double sum_error =
      kRounding<T> * (20 + static_cast<double>(std::min<std::size_t>(p.S, 512) + 3 * (p.S / 512)));
  const double tiny = 4 * std::numeric_limits<T>::min();  // the smallest weights become 0
  const double log_sum = static_cast<double>(exact.logsumexp[row]) - max;
  tolerance.logsumexp[row] =
      score_error + sum_error + std::abs(max) * kRounding<T> + std::abs(log_sum) * kRounding<T> * 2;
  const double gap = gap_of(exact, query, p);
  for (std::size_t j = 0; j < p.S; ++j) {
    const std::size_t at = row * p.S + j;
    const auto masked = static_cast<double>(exact.masked[at] / p.temperature);
    const double exp_error = is_visible(j) ? std::abs(masked - max) * kRounding<T> * 2 : 0;
    tolerance.weights[at] =
        p.normaliser == kernel::Normaliser::softmax
            ? double(exact.weights[at]) * (std::expm1(2 * score_error) + sum_error + exp_error) +
                  tiny
            : other_tolerance(p.normaliser, double(exact.weights[at]), score_error + sum_error,
                              gap);
    tolerance.dropped[at] = reference::dropout(p, query, j) * tolerance.weights[at] +
                            4 * kRounding<T> * double(exact.dropped[at]);
  }
  for (std::size_t d = 0; d < p.Dv; ++d) {
    double size = 0, of_weights = 0;  // the latter by normalisers other than softmax
    for (std::size_t j = 0; j < p.S; ++j) {
      const double value = c.v.at(b, h / (p.H / p.G), j, d);
      if (p.normaliser != kernel::Normaliser::softmax && is_visible(j) && std::isfinite(value))
        of_weights += tolerance.dropped[row * p.S + j] * std::abs(value);
      const auto weight = static_cast<double>(exact.dropped[row * p.S + j]);
      if (is_visible(j) || weight != 0) size += std::abs(weight * value);
    }
    const double of_rounding = p.bf16_products ? kBf16Rounding * size : 0;
    tolerance.context[row * p.Dv + d] = size * (std::expm1(2 * score_error) + 2 * sum_error) +
                                        of_rounding + of_weights +
                                        tiny * static_cast<double>(p.S) * double(p.dropout_factor);
  }
}

}  // namespace

template <class T>
Expected<T> expect(const Case<T>& c) {
  const auto& p = c.problem;
  const reference::Outputs<Real> exact = reference::attend<Real>(p);
  Expected<T> out;
  const auto copy = [&](const std::vector<Real>& from, std::vector<double> Answer<double>::*to) {
    (out.value.*to).assign(from.begin(), from.end());
    (out.tolerance.*to).resize(from.size());
  };
  copy(exact.context, &Answer<double>::context);
  copy(exact.logsumexp, &Answer<double>::logsumexp);
  copy(exact.scores, &Answer<double>::scores);
  copy(exact.scaled, &Answer<double>::scaled);
  copy(exact.masked, &Answer<double>::masked);
  copy(exact.weights, &Answer<double>::weights);
  copy(exact.dropped, &Answer<double>::dropped);
  for (std::size_t b = 0; b < p.B; ++b)
    for (std::size_t h = 0; h < p.H; ++h)
      for (std::size_t l = 0; l < p.L; ++l) set_tolerances(c, exact, b, h, l, out.tolerance);
  return out;
}

template <class T>
std::string difference(const std::vector<T>& found, const std::vector<double>& expected,
                       const std::vector<double>& tolerance) {
  if (found.size() != expected.size()) return "sizes differ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto x = static_cast<double>(found[i]);
    const bool same = std::isnan(expected[i])
                          ? std::isnan(x)
                          : x == expected[i] || std::abs(x - expected[i]) <= tolerance[i];
    if (same) continue;
    std::ostringstream out;
    out.precision(17);
    out << "element " << i << ": expected " << expected[i] << " +- " << tolerance[i] << ", found "
        << x;
    return out.str();
  }
  return "";
}

template Expected<float> expect(const Case<float>&);
template Expected<double> expect(const Case<double>&);
template std::string difference(const std::vector<float>&, const std::vector<double>&,
                                const std::vector<double>&);
template std::string difference(const std::vector<double>&, const std::vector<double>&,
                                const std::vector<double>&);

}  // namespace attn::test
