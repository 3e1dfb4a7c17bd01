#include "support/backward_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/kernel/reference.h"

namespace attn::test {
namespace {

using Exact = long double;
namespace formula = kernel::reference;

template <class T>
constexpr double kUnitRoundoff = std::numeric_limits<T>::epsilon() / 2;

bool happens(std::mt19937_64& random, double probability) {
  return std::uniform_real_distribution<>()(random) < probability;
}

/// NaN in keys and values that no query sees, and in queries that see no key.
template <class T>
void hide_nan(BackwardCase<T>& c, Case<T>& of) {
  const auto& p = of.problem;
  const double nan = std::nan("");
  std::vector<bool> seen(p.B * p.G * p.S);
  for (std::size_t i = 0; i < p.B * p.H * p.L; ++i) {
    const formula::Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
    bool sees_any = false;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!formula::is_visible(p, q, j)) continue;
      sees_any = seen[(q.b * p.G + q.h / (p.H / p.G)) * p.S + j] = true;
    }
    if (sees_any) continue;
    if (p.D > 0) of.q.set(q.b, q.h, q.l, q.l % p.D, nan);
    if (p.Dv > 0) c.grad.set(q.b, q.h, q.l, q.l % p.Dv, nan);
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) continue;
    const std::size_t b = i / p.S / p.G, g = i / p.S % p.G, j = i % p.S;
    if (p.D > 0) of.k.set(b, g, j, j % p.D, nan);
    if (p.Dv > 0) of.v.set(b, g, j, j % p.Dv, nan);
  }
}

/// The size of a bias's gradient, which has the strides of the bias.
template <class T>
std::size_t index_of(const kernel::Bias<T>& bias, formula::Query q, std::size_t j) {
  return static_cast<std::size_t>(formula::offset(bias.strides, q.b, q.h, q.l, j));
}

/// Bounds for one query: its errors are at most `relative` times sums of magnitudes.
template <class T>
struct RowBound {
  double relative = 0, delta = 0;
  std::vector<double> grad_weights;  ///< sums of magnitudes
};

template <class T>
RowBound<T> bound_row(const BackwardCase<T>& c, const Case<T>& of,
                      const formula::Outputs<Exact>& forward, std::size_t i) {
  const auto& p = of.problem;
  const formula::Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
  const std::size_t g = q.h / (p.H / p.G);
  RowBound<T> bound;
  bound.grad_weights.resize(p.S);
  double size = std::abs(double(forward.logsumexp[i]));
  for (std::size_t j = 0; j < p.S; ++j) {
    if (!formula::is_visible(p, q, j)) continue;
    double dot = 0;
    for (std::size_t d = 0; d < p.D; ++d)
      dot += std::abs(of.q.at(q.b, q.h, q.l, d) * of.k.at(q.b, g, j, d));
    double score = dot * std::abs(double(p.scale) * formula::head_scale(p, q)) *
                   (static_cast<double>(p.D) + 4);
    for (const T bias : formula::biases(p, q, j)) score += 4 * std::abs(double(bias));
    size = std::max(size, (score + 8 * double(p.softcap)) / double(p.temperature));
    for (std::size_t d = 0; formula::dropout(p, q, j) != 0 && d < p.Dv; ++d)
      bound.grad_weights[j] +=
          formula::dropout(p, q, j) * std::abs(c.grad.at(q.b, q.h, q.l, d) * of.v.at(q.b, g, j, d));
    bound.delta += static_cast<double>(forward.weights[i * p.S + j]) * bound.grad_weights[j];
  }
  if (c.problem.grad_logsumexp) bound.delta += std::abs(double(c.problem.grad_logsumexp[i]));
  const double capped = p.softcap > 0 ? 2 * double(p.temperature) / double(p.softcap) : 0;
  // Sums run over at most 32 (double: 128) terms, then over blocks.
  bound.relative = kUnitRoundoff<T> * ((2 + capped) * size + 2 * static_cast<double>(p.Dv) + 300);
  return bound;
}

}  // namespace

template <class T>
void fill_backward(BackwardCase<T>& c, Case<T>& of, std::mt19937_64& random, bool options) {
  of.problem.normaliser = kernel::Normaliser::softmax;
  const auto& p = of.problem;
  std::normal_distribution<> normal;
  const DType dtype = options && happens(random, 0.2) ? DType::bf16 : dtype_of<T>;
  const auto order = static_cast<Order>(options ? random() % 3 : 0);
  c.grad = make_elements(dtype, {p.B, p.H, p.L, p.Dv}, order);
  for (std::size_t b = 0; b < p.B; ++b)
    for (std::size_t h = 0; h < p.H; ++h)
      for (std::size_t l = 0; l < p.L; ++l)
        for (std::size_t d = 0; d < p.Dv; ++d) c.grad.set(b, h, l, d, normal(random));
  if (options && happens(random, 0.5)) hide_nan(c, of);
  of.point();
  c.problem.problem = p;
  if (options && happens(random, 0.5))
    for (std::size_t i = 0; i < p.B * p.H * p.L; ++i)
      c.grad_logsumexp.push_back(static_cast<T>(normal(random)));
  c.problem.grad_context = c.grad.operand();
  c.problem.grad_logsumexp = c.grad_logsumexp.empty() ? nullptr : c.grad_logsumexp.data();
  const auto assign = [](const std::vector<Exact>& from, std::vector<T>& to) {
    for (const Exact x : from) to.push_back(static_cast<T>(x));
  };
  assign(formula::attend<Exact>(p).logsumexp, c.logsumexp);
  assign(formula::attend_backward<Exact>(c.problem).delta, c.delta);
  c.problem.logsumexp = c.logsumexp.data();
  c.problem.delta = c.delta.data();
}

template <class T>
BackwardAnswer<T> compute(const BackwardCase<T>& c, const Case<T>& of, kernel::ThreadPool& pool,
                          kernel::Isa isa) {
  const auto& p = of.problem;
  const T unset = T(-12345);
  BackwardAnswer<T> answer;
  answer.q.assign(p.B * p.H * p.L * p.D, unset);
  answer.k.assign(p.B * p.G * p.S * p.D, unset);
  answer.v.assign(p.B * p.G * p.S * p.Dv, unset);
  kernel::BackwardResults<T> gradients;
  gradients.q = answer.q.data(), gradients.k = answer.k.data(), gradients.v = answer.v.data();
  for (std::size_t m = 0; m < of.biases.size(); ++m) {
    answer.biases[m].assign(of.biases[m].size(), T(0));
    if (!of.biases[m].empty()) gradients.biases[m] = answer.biases[m].data();
  }
  if (p.sinks) answer.sinks.assign(p.H, unset), gradients.sinks = answer.sinks.data();
  kernel::attend_backward(c.problem, gradients, pool, isa);
  return answer;
}

template <class T>
BackwardExpected<T> expect(const BackwardCase<T>& c, const Case<T>& of) {
  const auto& p = of.problem;
  const formula::Outputs<Exact> forward = formula::attend<Exact>(p);
  const formula::BackwardOutputs<Exact> exact = formula::attend_backward<Exact>(c.problem);
  BackwardExpected<T> out;
  BackwardAnswer<double>& value = out.value;
  BackwardAnswer<double>& tolerance = out.tolerance;
  const auto copy = [&](const std::vector<Exact>& from,
                        std::vector<double> BackwardAnswer<double>::*to) {
    (value.*to).assign(from.begin(), from.end());
    // The smallest weights become 0.
    (tolerance.*to).assign(from.size(), 1e4 * std::numeric_limits<T>::min());
  };
  copy(exact.q, &BackwardAnswer<double>::q);
  copy(exact.k, &BackwardAnswer<double>::k);
  copy(exact.v, &BackwardAnswer<double>::v);
  if (p.sinks) copy(exact.sinks, &BackwardAnswer<double>::sinks);
  for (std::size_t m = 0; m < of.biases.size(); ++m) {
    value.biases[m].assign(of.biases[m].size(), 0);
    tolerance.biases[m].assign(of.biases[m].size(), 1e4 * std::numeric_limits<T>::min());
  }
  for (std::size_t i = 0; i < p.B * p.H * p.L; ++i) {
    const formula::Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
    const std::size_t g = q.h / (p.H / p.G);
    const RowBound<T> bound = bound_row(c, of, forward, i);
    for (std::size_t j = 0; j < p.S; ++j) {
      for (std::size_t m = 0; m < of.biases.size(); ++m)
        if (!of.biases[m].empty())
          value.biases[m][index_of(p.biases[m], q, j)] +=
              static_cast<double>(exact.masked[i * p.S + j]);
      if (!formula::is_visible(p, q, j)) continue;
      const std::size_t key = (q.b * p.G + g) * p.S + j;
      const auto weight = static_cast<double>(forward.weights[i * p.S + j]);
      const double masked =
          weight * (bound.grad_weights[j] + bound.delta) / double(p.temperature) * bound.relative;
      const double scaled = std::abs(double(p.scale) * formula::head_scale(p, q)) * masked;
      for (std::size_t d = 0; d < p.D; ++d) {
        tolerance.q[i * p.D + d] += scaled * std::abs(of.k.at(q.b, g, j, d));
        tolerance.k[key * p.D + d] += scaled * std::abs(of.q.at(q.b, q.h, q.l, d));
      }
      for (std::size_t d = 0; formula::dropout(p, q, j) != 0 && d < p.Dv; ++d)
        tolerance.v[key * p.Dv + d] += weight * formula::dropout(p, q, j) * bound.relative *
                                       std::abs(c.grad.at(q.b, q.h, q.l, d));
      for (std::size_t m = 0; m < of.biases.size(); ++m)
        if (!of.biases[m].empty())
          tolerance.biases[m][index_of(p.biases[m], q, j)] +=
              masked + kUnitRoundoff<T> * static_cast<double>(p.B * p.H * p.L + p.S) * weight *
                           (bound.grad_weights[j] + bound.delta) / double(p.temperature);
    }
    if (p.sinks && !std::isinf(formula::sink(p, q)))
      tolerance.sinks[q.h] +=
          static_cast<double>(std::exp(formula::sink(p, q) - forward.logsumexp[i])) * bound.delta *
          (bound.relative + 4 * kUnitRoundoff<T> * std::abs(double(p.sinks[q.h])));
  }
  return out;
}

template void fill_backward(BackwardCase<float>&, Case<float>&, std::mt19937_64&, bool);
template void fill_backward(BackwardCase<double>&, Case<double>&, std::mt19937_64&, bool);
template BackwardAnswer<float> compute(const BackwardCase<float>&, const Case<float>&,
                                       kernel::ThreadPool&, kernel::Isa);
template BackwardAnswer<double> compute(const BackwardCase<double>&, const Case<double>&,
                                        kernel::ThreadPool&, kernel::Isa);
template BackwardExpected<float> expect(const BackwardCase<float>&, const Case<float>&);
template BackwardExpected<double> expect(const BackwardCase<double>&, const Case<double>&);

}  // namespace attn::test
