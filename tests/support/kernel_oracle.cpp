// The formula in plain loops, with error bounds for each output.
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
kernel::Place place_of(const kernel::Problem<T>& p, std::size_t b, std::size_t l) {
  if (p.places) return p.places[static_cast<std::int64_t>(b) * p.places_batch + l];
  return {.first = 0, .last = static_cast<std::int64_t>(p.S)};
}

template <class T>
bool is_seen(const kernel::Problem<T>& p, std::size_t b, std::size_t h, std::size_t l,
             std::size_t key) {
  const kernel::Place place = place_of(p, b, l);
  const auto j = static_cast<std::int64_t>(key);
  const auto at = [&](const kernel::Strides& s) {
    return b * s.batch + h * s.head + l * s.row + key * s.column;
  };
  bool seen = !place.padding && j >= place.first && j < place.last;
  for (const auto& [data, strides, hides] : p.masks)
    if (data && (data[at(strides)] != 0) == hides) seen = false;
  for (const auto& [data, strides] : p.biases)
    if (data && data[at(strides)] == -std::numeric_limits<T>::infinity()) seen = false;
  return seen;
}

/// A number, and a bound on its error in T.
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

/// c tanh(x / c), in a few rounded operations; its slope is at most 1.
template <class T>
Rounded capped(const kernel::Problem<T>& p, Rounded x) {
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const Real value = p.softcap * std::tanh(x.value / p.softcap);
  return {value, x.off + std::abs(double(value)) * eps * 8};
}

template <class T>
Rounded scaled_score(const kernel::Problem<T>& p, Rounded raw) {
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const Real value = raw.value * p.scale;
  const Rounded x{value, raw.off * std::abs(double(p.scale)) + std::abs(double(value)) * eps};
  return p.softcap > 0 && !p.softcap_last ? capped(p, x) : x;
}

/// The terms added to a scaled score.
template <class T>
Rounded masked_score(const kernel::Problem<T>& p, Rounded x, std::size_t b, std::size_t h,
                     std::size_t l, std::size_t j) {
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const auto add = [&](Real term) {
    x.value += term;
    x.off += (std::abs(double(x.value)) + std::abs(double(term))) * eps;
  };
  if (p.distances.data) {
    const kernel::Strides& s = p.distances.strides;
    const std::int64_t distance = static_cast<std::int64_t>(j) - place_of(p, b, l).center;
    add(p.distances.data[static_cast<std::int64_t>(b) * s.batch +
                         static_cast<std::int64_t>(h) * s.head + distance]);
  }
  for (const auto& [data, s] : p.biases)
    if (data) add(data[b * s.batch + h * s.head + l * s.row + j * s.column]);
  return p.softcap > 0 && p.softcap_last ? capped(p, x) : x;
}

/// The masked scores of one query, divided by the temperature, and the sums over them.
struct ScoreRow {
  std::vector<Real> masked, weight;  ///< weight: e^(masked - most)
  std::vector<bool> seen;
  bool any = false;
  Real most = -kInfinity, sum = 0;
  double off = 0;  ///< error bound of a masked score
};

/// The expected scores, scaled scores and masked scores of a row; `scores` receives the masked
/// ones.
template <class T>
void expect_scores(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l, Expected<T>& out,
                   ScoreRow& scores) {
  const auto& p = c.problem;
  const std::size_t row = (b * p.H + h) * p.L + l;
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const auto expect = [&](std::vector<double> Answer<double>::*stage, std::size_t j, Rounded x) {
    (out.value.*stage)[row * p.S + j] = static_cast<double>(x.value);
    (out.tolerance.*stage)[row * p.S + j] = x.off;
  };
  for (std::size_t j = 0; j < p.S; ++j) {
    const Rounded raw = raw_score(c, b, h, l, j), scaled = scaled_score(p, raw);
    expect(&Answer<double>::scores, j, raw);
    expect(&Answer<double>::scaled, j, scaled);
    expect(&Answer<double>::masked, j, {-kInfinity, 0});
    scores.seen[j] = is_seen(p, b, h, l, j);
    if (!scores.seen[j]) continue;
    const Rounded masked = masked_score(p, scaled, b, h, l, j);
    expect(&Answer<double>::masked, j, masked);
    scores.any = true;
    scores.masked[j] = masked.value / p.temperature;
    const double off = masked.off + 2 * eps * std::abs(double(masked.value));
    scores.off = std::max(scores.off, off / double(p.temperature));
    if (!std::isnan(masked.value)) scores.most = std::max(scores.most, scores.masked[j]);
  }
}

template <class T>
ScoreRow score_row(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l,
                   Expected<T>& out) {
  const auto& p = c.problem;
  ScoreRow scores{std::vector<Real>(p.S), std::vector<Real>(p.S), std::vector<bool>(p.S)};
  expect_scores(c, b, h, l, out, scores);
  if (p.sinks && !place_of(p, b, l).padding && p.sinks[h] > -kInfinity) {
    const auto sink = static_cast<Real>(p.sinks[h]);
    const double eps = std::numeric_limits<T>::epsilon() / 2;
    scores.most = std::max(scores.most, sink);
    scores.off = std::max(scores.off, 2 * eps * std::abs(double(sink)));
    scores.sum = std::exp(sink - scores.most);
  }
  for (std::size_t j = 0; j < p.S; ++j)
    if (scores.seen[j]) scores.sum += scores.weight[j] = std::exp(scores.masked[j] - scores.most);
  return scores;
}

/// One row of all outputs.
template <class T>
void expect_row(const Case<T>& c, std::size_t b, std::size_t h, std::size_t l, Expected<T>& out) {
  const auto& p = c.problem;
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  const std::size_t row = (b * p.H + h) * p.L + l;
  const ScoreRow scores = score_row(c, b, h, l, out);
  // Sums run over at most one key block, then over the blocks.
  const double sum_off =
      eps * (20 + static_cast<double>(std::min<std::size_t>(p.S, 512) + 3 * (p.S / 512)));
  const double tiny = 4 * std::numeric_limits<T>::min();  // underflow
  const double most = static_cast<double>(scores.most);
  const bool empty = !scores.any && scores.sum == 0;
  const Real nothing = empty && !place_of(p, b, l).padding ? Real(p.empty_weight) : 0;
  const auto weight = [&](std::size_t j) {
    return scores.seen[j] ? scores.weight[j] / scores.sum : nothing;
  };
  for (std::size_t j = 0; j < p.S; ++j) {
    const auto w = static_cast<double>(weight(j));
    const double lag = scores.seen[j] ? std::abs(double(scores.masked[j]) - most) * eps * 2 : 0;
    out.value.weights[row * p.S + j] = w;
    out.tolerance.weights[row * p.S + j] = w * (std::expm1(2 * scores.off) + sum_off + lag) + tiny;
  }
  const double log_sum = std::log(double(scores.sum));
  out.value.logsumexp[row] = empty ? -kInfinity : most + log_sum;
  out.tolerance.logsumexp[row] =
      scores.off + sum_off + std::abs(most) * eps + std::abs(log_sum) * eps * 2;
  for (std::size_t x = 0; x < p.Dv; ++x) {
    Real total = 0, size = 0;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!scores.seen[j] && nothing == 0) continue;
      const Real term = weight(j) * c.v.at(b, h / (p.H / p.G), j, x);
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
    for (auto* matrix : {&answer->scores, &answer->scaled, &answer->masked, &answer->weights})
      matrix->resize(p.B * p.H * p.L * p.S);
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
