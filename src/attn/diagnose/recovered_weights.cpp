#include "attn/diagnose/recovered_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/attention/attention.h"
#include "attn/base/number_text.h"
#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/pattern.h"

namespace attn {
namespace {

/// The lower triangle L of a symmetric matrix L L^T (n, n), in place. False if it is singular.
bool factorise(std::vector<double>& a, std::size_t n) {
  double largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i * n + i]);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i == j && sum <= 1e-10 * largest) return false;
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  return true;
}

/// Solves L L^T x = b in place.
void solve(const std::vector<double>& l, std::size_t n, std::vector<double>& b) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= l[i * n + k] * b[k];
    b[i] /= l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= l[k * n + i] * b[k];
    b[i] /= l[i * n + i];
  }
}

/// The batch item and head of this row with the largest error.
std::pair<std::size_t, std::size_t> worst_head(const Evidence& evidence, const Tensor& result,
                                               const Tensor& reference) {
  std::size_t worst = 0;
  double largest = -1;
  const auto a = result.data<double>(), b = reference.data<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::isnan(a[i]) ? HUGE_VAL : std::abs(a[i] - b[i]);
    if (error > largest) largest = error, worst = i;
  }
  const std::size_t head = worst / evidence.view.C;
  return {head / evidence.view.H, head % evidence.view.H};
}

}  // namespace

std::string recovered_weights(const Evidence& evidence, const Variant& job, std::size_t row,
                              std::size_t query) {
  const Inputs in = make_inputs(job);
  if ((evidence.output != Request{Output::context} &&
       evidence.output != Request{Output::head_context}) ||
      in.S > in.Dv || in.S == 0 || in.S > 512 || in[Input::gate])
    return "";
  const Tensor result = taken(evidence.result, evidence.view, {row});
  const Tensor reference = taken(evidence.reference, evidence.view, {row});
  const auto [item, head] = worst_head(evidence, result, reference);
  const Evaluated weights = evaluate(job, Output::weights, {query}, nullptr);
  const Tensor values = attend(job, {Output::present_V}).at(name_of(Output::present_V));
  const std::size_t S = in.S, Dv = in.Dv, from = (item * in.G + head / (in.H / in.G)) * S * Dv;
  if (in.E > 0 || values.size() != in.B * in.G * S * Dv) return "";
  const auto V = values.data<double>().subspan(from, S * Dv);
  const auto a = result.data<double>().subspan((item * in.H + head) * Dv, Dv);
  std::vector<double> squares(S * S), w(S);
  double noise = 0;
  for (const double x : a) {
    if (!std::isfinite(x)) return "";
    noise = std::max(noise, std::abs(x));
  }
  for (std::size_t i = 0; i < S; ++i)
    for (std::size_t c = 0; c < Dv; ++c) {
      w[i] += V[i * Dv + c] * a[c];
      for (std::size_t j = 0; j <= i; ++j) squares[i * S + j] += V[i * Dv + c] * V[j * Dv + c];
    }
  if (!factorise(squares, S)) return "";
  solve(squares, S, w);
  noise *= evidence.precision != nullptr ? 8 * evidence.precision->result : 1e-3;
  for (std::size_t c = 0; c < Dv; ++c) {  // other values than those of the job may be the cause
    double left = a[c];
    for (std::size_t j = 0; j < S; ++j) left -= w[j] * V[j * Dv + c];
    if (std::abs(left) > noise) return "";
  }
  std::vector<std::size_t> missing, added;
  double sum = 0;
  const auto expected = weights.values.data<double>().subspan((item * in.H + head) * S, S);
  for (std::size_t j = 0; j < S; ++j) {
    std::vector<double> unit(S);
    unit[j] = 1;
    solve(squares, S, unit);
    const double error = noise * std::sqrt(unit[j]) + 1e-9;
    sum += w[j];
    if (std::abs(w[j]) <= error && expected[j] > 3 * error) missing.push_back(j);
    if (std::abs(w[j]) > 3 * error && expected[j] == 0) added.push_back(j);
  }
  const std::string of_item = in.B > 1 ? " of batch item " + std::to_string(item) : "";
  std::string text = "row " + std::to_string(row) + " of head " + std::to_string(head) + of_item +
                     ": its weights, recovered from the values, sum to " + six_digits(sum);
  if (!missing.empty()) text += "; they miss " + ranges_text("key", missing);
  if (!added.empty()) text += "; they include " + ranges_text("hidden key", added);
  return text;
}

}  // namespace attn
