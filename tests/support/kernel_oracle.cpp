// The formula in plain loops, and how far rounding may take each output from it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "support/kernel_case.h"

namespace attn::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Real = long double;

template <class T>
bool is_seen(const kernel::Problem<T>& p, std::size_t b, std::size_t h, std::size_t l,
             std::size_t key) {
  const Real i = p.positions ? p.positions[l] : static_cast<std::int64_t>(l);
  const Real j = static_cast<Real>(key), center = i + p.offset;  // no overflow, 64 bits exact
  const auto at = [&](const kernel::Strides& s) {
    return b * s.batch + h * s.head + static_cast<std::int64_t>(i) * s.row + key * s.column;
  };
  return !(p.lengths && j >= p.lengths[b]) && !(p.causal && j > center) &&
         !(p.left >= 0 && j < center - p.left) && !(p.right >= 0 && j > center + p.right) &&
         !(p.mask && p.mask[at(p.mask_strides)] == 0) &&
         !(p.bias && p.bias[at(p.bias_strides)] == -std::numeric_limits<T>::infinity());
}

/// A number and how far rounding in T may take it.
struct Rounded {
  Real value = 0;
  double off = 0;
};

/// q . k
template <class T>
Rounded raw_score(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l, std::size_t j) {
  const auto& p = c.problem;
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  Rounded raw;
  Real size = 0;
  for (std::size_t x = 0; x < p.D; ++x) {
    const Real product = Real(c.q.at(b, h, l, x)) * c.k.at(b, h / (p.H / p.G), j, x);
    raw.value += product;
    size += std::abs(product);
  }
  raw.off = static_cast<double>(size) * eps * (static_cast<double>(p.D) + 2) +
            static_cast<double>(std::numeric_limits<T>::denorm_min());
  return raw;
}

/// Scale, softcap, ALiBi and bias on a raw score.
template <class T>
Rounded masked_score(const Case<T>& c, Rounded raw, std::size_t b, std::size_t h, std::size_t l,
                     std::size_t j) {
  const auto& p = c.problem;
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  Real x = raw.value * p.scale;
  double off = raw.off * std::abs(double(p.scale)) + std::abs(double(x)) * eps;
  if (p.softcap > 0) {
    x = p.softcap * std::tanh(x / p.softcap);
    off += std::abs(double(x)) * eps * 8;
  }
  const std::int64_t i = p.positions ? p.positions[l] : static_cast<std::int64_t>(l);
  const Real before = x;
  if (p.alibi) x -= p.alibi[h] * std::abs(Real(i) + p.offset - static_cast<Real>(j));
  if (p.bias)
    x += p.bias[b * p.bias_strides.batch + h * p.bias_strides.head + i * p.bias_strides.row +
                j * p.bias_strides.column];
  off += (std::abs(double(x)) + 2 * std::abs(double(x - before))) * eps * 2;
  return {x, off};
}

/// The masked scores of one query, and what follows from all of them.
struct ScoreRow {
  std::vector<Real> masked, weight;  ///< weight: e^(masked - most)
  std::vector<bool> seen;
  Real most = -kInfinity, sum = 0;
  double off = 0;  ///< how far a masked score may be off
};

template <class T>
ScoreRow score_row(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l,
                   Expected<T>& out) {
  const auto& p = c.problem;
  const std::size_t row = (b * p.H + h) * p.L + l;
  ScoreRow scores{std::vector<Real>(p.S), std::vector<Real>(p.S), std::vector<bool>(p.S)};
  for (std::size_t j = 0; j < p.S; ++j) {
    const Rounded raw = raw_score(c, b, h, l, j);
    out.value.scores[row * p.S + j] = static_cast<double>(raw.value);
    out.tolerance.scores[row * p.S + j] = raw.off;
    scores.seen[j] = is_seen(p, b, h, l, j);
    if (!scores.seen[j]) continue;
    const Rounded masked = masked_score(c, raw, b, h, l, j);
    scores.masked[j] = masked.value;
    scores.off = std::max(scores.off, masked.off);
    if (!std::isnan(masked.value)) scores.most = std::max(scores.most, masked.value);
  }
  for (std::size_t j = 0; j < p.S; ++j)
    if (scores.seen[j]) scores.sum += scores.weight[j] = std::exp(scores.masked[j] - scores.most);
  return scores;
}

/// One row of every output.
template <class T>
void expect_row(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l, Expected<T>& out) {
  const auto& p = c.problem;
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const std::size_t row = (b * p.H + h) * p.L + l;
  const ScoreRow scores = score_row(c, b, h, l, out);
  // Sums run over at most one key block, then over the blocks.
  const double sum_off =
      eps * (20 + static_cast<double>(std::min<std::size_t>(p.S, 512) + 3 * (p.S / 512)));
  const double tiny = 4 * std::numeric_limits<T>::min();  // what underflows is lost
  const double most = static_cast<double>(scores.most);
  bool any = false;
  for (std::size_t j = 0; j < p.S; ++j) {
    any = any || scores.seen[j];
    const double w = scores.seen[j] ? static_cast<double>(scores.weight[j] / scores.sum) : 0;
    const double lag = w > 0 ? std::abs(double(scores.masked[j]) - most) * eps * 2 : 0;
    out.value.weights[row * p.S + j] = w;
    out.tolerance.weights[row * p.S + j] = w * (std::expm1(2 * scores.off) + sum_off + lag) + tiny;
  }
  const double log_sum = std::log(double(scores.sum));
  out.value.logsumexp[row] = any ? most + log_sum : -kInfinity;
  out.tolerance.logsumexp[row] =
      scores.off + sum_off + std::abs(most) * eps + std::abs(log_sum) * eps * 2;
  for (std::size_t x = 0; x < p.Dv; ++x) {
    Real total = 0, size = 0;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!scores.seen[j]) continue;
      const Real term = scores.weight[j] / scores.sum * c.v.at(b, h / (p.H / p.G), j, x);
      total += term;
      size += std::abs(term);
    }
    out.value.context[row * p.Dv + x] = static_cast<double>(total);
    out.tolerance.context[row * p.Dv + x] =
        static_cast<double>(size) * (std::expm1(2 * scores.off) + 2 * sum_off) +
        tiny * static_cast<double>(p.S);
  }
}

}  // namespace

template <class T>
Expected<T> expect(const Case<T>& c) {
  const auto& p = c.problem;
  Expected<T> out;
  for (Answer<double>* answer : {&out.value, &out.tolerance}) {
    answer->context.resize(p.B * p.H * p.L * p.Dv);
    answer->logsumexp.resize(p.B * p.H * p.L);
    answer->scores.resize(p.B * p.H * p.L * p.S);
    answer->weights.resize(p.B * p.H * p.L * p.S);
  }
  for (std::size_t b = 0; b < p.B; ++b)
    for (std::size_t h = 0; h < p.H; ++h)
      for (std::size_t l = 0; l < p.L; ++l) expect_row(c, b, h, l, out);
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
    out.precision(10);
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
