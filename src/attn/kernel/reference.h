// The definition of what attend() and attend_backward() compute, in plain loops, one query at a
// time. The fast kernels are tested against it. It shares no code with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attn/base/dtype.h"
#include "attn/kernel/backward.h"
#include "attn/kernel/problem.h"

namespace attn::kernel::reference {

/// All outputs, contiguous and without padding.
template <class N>
struct Outputs {
  std::vector<N> scores, scaled, masked, weights, dropped;  ///< (B, H, L, S)
  std::vector<N> context;                                   ///< (B, H, L, Dv)
  std::vector<N> logsumexp;                                 ///< (B, H, L)
};

/// A batch item, query head and query.
struct Query {
  std::size_t b, h, l;
};

inline std::int64_t offset(const Strides& s, std::size_t b, std::size_t h, std::size_t row,
                           std::size_t column) {
  const auto times = [](std::size_t i, std::int64_t stride) {
    return static_cast<std::int64_t>(i) * stride;
  };
  return times(b, s.batch) + times(h, s.head) + times(row, s.row) + times(column, s.column);
}

/// x[b, h, row, column]
inline double element(const Operand& x, std::size_t b, std::size_t h, std::size_t row,
                      std::size_t column) {
  const std::int64_t at = offset(x.strides, b, h, row, column);
  switch (x.dtype) {
    case DType::f64:
      return static_cast<const double*>(x.data)[at];
    case DType::f16:
      return double(static_cast<const Half*>(x.data)[at]);
    case DType::bf16:
      return double(static_cast<const BFloat16*>(x.data)[at]);
    default:
      return double(static_cast<const float*>(x.data)[at]);
  }
}

/// A query, key or value as a factor of a product. Subnormal numbers count as 0 in bfloat16.
template <class T>
double factor(const AttentionProblem<T>& p, double x) {
  if (!p.bf16_products) return x;
  const auto number = static_cast<float>(x);
  if (std::fabs(number) < std::numeric_limits<float>::min()) return std::copysign(0.0, x);
  return double(BFloat16(number));
}

/// What elements d of a query and a key add to a score.
template <class N, class T>
N term(const AttentionProblem<T>& p, std::size_t d, N query, N key) {
  if (p.score == Score::distance) return -(query - key) * (query - key);
  if (p.score == Score::tanh) return p.score_weights[d] * std::tanh(query + key);
  return query * key;
}

template <class T>
KeyRange key_range(const AttentionProblem<T>& p, Query q) {
  if (!p.key_ranges) return {0, static_cast<std::int64_t>(p.S), 0, false};
  return p.key_ranges[static_cast<std::int64_t>(q.b) * p.key_ranges_batch +
                      static_cast<std::int64_t>(q.l)];
}

/// Whether the query sees key j: its key range holds it, and no mask or bias of -inf hides it.
template <class T>
bool is_visible(const AttentionProblem<T>& p, Query q, std::size_t j) {
  const KeyRange range = key_range(p, q);
  const auto key = static_cast<std::int64_t>(j);
  bool visible = !range.padding && key >= range.begin && key < range.end;
  for (const auto& [data, strides, hides] : p.masks)
    if (data && (data[offset(strides, q.b, q.h, q.l, j)] != 0) == hides) visible = false;
  for (const auto& [data, strides] : p.biases)
    if (data && std::isinf(data[offset(strides, q.b, q.h, q.l, j)]) &&
        data[offset(strides, q.b, q.h, q.l, j)] < 0)
      visible = false;
  return visible;
}

/// The terms that are added to the scaled score of key j, in order: the bias of its distance, then
/// the other biases.
template <class T>
std::vector<T> biases(const AttentionProblem<T>& p, Query q, std::size_t j) {
  std::vector<T> found;
  if (p.distances.data) {
    const std::int64_t distance = static_cast<std::int64_t>(j) - key_range(p, q).center;
    found.push_back(p.distances.data[offset(p.distances.strides, q.b, q.h, 0, 0) + distance]);
  }
  for (const auto& [data, strides] : p.biases)
    if (data) found.push_back(data[offset(strides, q.b, q.h, q.l, j)]);
  return found;
}

template <class T>
double head_scale(const AttentionProblem<T>& p, Query q) {
  return p.head_scales ? double(p.head_scales[q.h]) : 1;
}

/// The logit of the query's attention sink; -inf for none. Padding queries have none.
template <class T>
T sink(const AttentionProblem<T>& p, Query q) {
  return p.sinks && !key_range(p, q).padding ? p.sinks[q.h] : -std::numeric_limits<T>::infinity();
}

/// The factor of a weight: 0 if it is dropped, 1 / (1 - p) if it is kept, 1 without dropout.
template <class T>
double dropout(const AttentionProblem<T>& p, Query q, std::size_t j) {
  const auto& [data, strides, hides] = p.dropout;
  if (!data) return 1;
  return (data[offset(strides, q.b, q.h, q.l, j)] != 0) == hides ? 0 : double(p.dropout_factor);
}

/// The number t, from -1 to 0, at which a decreasing function is 1, by bisection.
template <class N, class F>
N where_one(F f) {
  N low = -1, high = 0;
  for (int i = 0; i < 200; ++i) {
    const N middle = (low + high) / 2;
    (f(middle) > 1 ? low : high) = middle;
  }
  return high;
}

/// The weights of the visible scores x by a normaliser other than softmax. They are all NaN if they
/// depend on each other and a score is NaN or the largest is infinite.
template <class N>
std::vector<N> other_weights(Normaliser normaliser, std::size_t top_k, std::vector<N> x) {
  if (normaliser == Normaliser::softmax || x.empty()) return {};
  if (normaliser == Normaliser::sigmoid) {
    for (N& score : x) score = 1 / (1 + std::exp(-score));
    return x;
  }
  const auto largest = std::max_element(x.begin(), x.end());
  const auto first = static_cast<std::size_t>(largest - x.begin());
  const N max = *largest;
  const auto is_nan = [](N score) { return std::isnan(score); };
  if (std::isinf(max) || std::any_of(x.begin(), x.end(), is_nan))
    return std::vector<N>(x.size(), std::numeric_limits<N>::quiet_NaN());
  if (normaliser == Normaliser::top_k) {
    std::vector<N> weights(x.size()), left = x;
    N sum = 0;
    for (std::size_t n = 0; n < std::min(top_k, x.size()); ++n) {
      const auto at =
          static_cast<std::size_t>(std::max_element(left.begin(), left.end()) - left.begin());
      sum += weights[at] = std::exp(x[at] - max);
      left[at] = -std::numeric_limits<N>::infinity();
    }
    for (N& weight : weights) weight /= sum;
    return weights;
  }
  const bool halves = normaliser == Normaliser::entmax15;
  for (N& score : x) score = (score - max) / (halves ? 2 : 1);
  const auto weight = [&](N score, N t) {
    const N above = std::max(score - t, N(0));
    return halves ? above * above : above;
  };
  const N t = where_one<N>([&](N at) {
    N total = 0;
    for (const N score : x) total += weight(score, at);
    return total;
  });
  for (std::size_t j = 0; j < x.size(); ++j)
    x[j] = normaliser == Normaliser::hardmax ? N(j == first) : weight(x[j], t);
  return x;
}

/// Computes all outputs in N, for example long double.
template <class N, class T>
Outputs<N> attend(const AttentionProblem<T>& p) {
  constexpr N kHidden = -std::numeric_limits<N>::infinity();
  const std::size_t queries = p.B * p.H * p.L;
  const std::vector<N> matrix(queries * p.S);
  Outputs<N> out{matrix,
                 matrix,
                 matrix,
                 matrix,
                 matrix,
                 std::vector<N>(queries * p.Dv),
                 std::vector<N>(queries)};
  const auto cap = [&](N x) { return p.softcap * std::tanh(x / p.softcap); };

  for (std::size_t i = 0; i < queries; ++i) {
    const Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
    const std::size_t g = q.h / (p.H / p.G);
    const std::size_t row = i * p.S;  // S may be 0: no subscripts here
    N *const scores = out.scores.data() + row, *const scaled = out.scaled.data() + row;
    N *const masked = out.masked.data() + row, *const weights = out.weights.data() + row;
    N* const dropped = out.dropped.data() + row;
    N max = kHidden;

    for (std::size_t j = 0; j < p.S; ++j) {
      for (std::size_t d = 0; d < p.D; ++d)
        scores[j] += term<N>(p, d, factor(p, element(p.q, q.b, q.h, q.l, d)),
                             factor(p, element(p.k, q.b, g, j, d)));
      scaled[j] = p.scale * head_scale(p, q) * scores[j];
      if (p.softcap > 0 && !p.softcap_last) scaled[j] = cap(scaled[j]);
      masked[j] = scaled[j];
      for (const T bias : biases(p, q, j)) masked[j] += bias;
      if (p.softcap > 0 && p.softcap_last) masked[j] = cap(masked[j]);
      if (!is_visible(p, q, j)) masked[j] = kHidden;
      if (masked[j] / p.temperature > max) max = masked[j] / p.temperature;  // NaN is ignored
    }

    max = std::max(max, N(sink(p, q)));
    const N origin = max == kHidden ? N(0) : max;  // keeps exp() within its range
    N sum = std::exp(sink(p, q) - origin);
    bool sees_any = false;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!is_visible(p, q, j)) continue;
      sees_any = true;
      sum += weights[j] = std::exp(masked[j] / p.temperature - origin);
    }
    out.logsumexp[i] = std::isinf(max) && max > 0 ? max : origin + std::log(sum);

    const bool empty = !sees_any && sum == 0;
    std::vector<N> seen;
    for (std::size_t j = 0; j < p.S; ++j)
      if (is_visible(p, q, j)) seen.push_back(masked[j] / p.temperature);
    const std::vector<N> others = other_weights(p.normaliser, p.top_k, seen);
    std::size_t next = 0;
    for (std::size_t j = 0; j < p.S; ++j) {
      const bool visible = is_visible(p, q, j);
      if (empty) weights[j] = key_range(p, q).padding ? N(0) : N(p.empty_weight);
      if (!empty && visible)
        weights[j] = p.normaliser == Normaliser::softmax ? weights[j] / sum : others[next++];
      if (const double factor = dropout(p, q, j); factor != 0) dropped[j] = weights[j] * factor;
      if (!empty ? !visible : dropped[j] == 0) continue;  // a hidden value has no effect, even NaN
      for (std::size_t d = 0; d < p.Dv; ++d)
        out.context[i * p.Dv + d] += dropped[j] * N(factor(p, element(p.v, q.b, g, j, d)));
    }
  }
  return out;
}

/// The gradients, contiguous.
template <class N>
struct BackwardOutputs {
  std::vector<N> q, k, v;  ///< (B, H, L, D), (B, G, S, D), (B, G, S, Dv)
  std::vector<N> masked;   ///< (B, H, L, S): of a bias, before any sum over broadcast axes
  std::vector<N> sinks;    ///< (H)
  std::vector<N> delta;    ///< (B, H, L)
};

/// Computes all gradients in N from the formula: in.logsumexp and in.delta are not used.
template <class N, class T>
BackwardOutputs<N> attend_backward(const BackwardProblem<T>& in) {
  const AttentionProblem<T>& p = in.problem;
  const Outputs<N> forward = attend<N>(p);
  const std::size_t queries = p.B * p.H * p.L;
  BackwardOutputs<N> out{std::vector<N>(queries * p.D),
                         std::vector<N>(p.B * p.G * p.S * p.D),
                         std::vector<N>(p.B * p.G * p.S * p.Dv),
                         std::vector<N>(queries * p.S),
                         std::vector<N>(p.H),
                         std::vector<N>(queries)};
  for (std::size_t i = 0; i < queries; ++i) {
    const Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
    const std::size_t g = q.h / (p.H / p.G);
    const N* const weights = forward.weights.data() + i * p.S;
    const auto counts = [&](std::size_t j) { return is_visible(p, q, j) && weights[j] != 0; };
    const N grad_logsumexp = in.grad_logsumexp ? N(in.grad_logsumexp[i]) : N(0);

    std::vector<N> grad_weights(p.S);
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!counts(j) || dropout(p, q, j) == 0) continue;
      for (std::size_t d = 0; d < p.Dv; ++d)
        grad_weights[j] += N(element(in.grad_context, q.b, q.h, q.l, d)) *
                           element(p.v, q.b, g, j, d) * dropout(p, q, j);
      out.delta[i] += weights[j] * grad_weights[j];
    }
    const N scale = N(p.scale) * head_scale(p, q);
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!counts(j)) continue;
      const N capped = p.softcap_last ? forward.masked[i * p.S + j] : forward.scaled[i * p.S + j];
      const N slope = p.softcap > 0 ? 1 - capped / p.softcap * (capped / p.softcap) : N(1);
      const N masked =
          weights[j] * (grad_weights[j] - out.delta[i] + grad_logsumexp) / p.temperature;
      const std::size_t key = (q.b * p.G + g) * p.S + j;
      out.masked[i * p.S + j] = p.softcap_last ? masked * slope : masked;
      for (std::size_t d = 0; d < p.D; ++d) {
        out.q[i * p.D + d] += scale * masked * slope * element(p.k, q.b, g, j, d);
        out.k[key * p.D + d] += scale * masked * slope * element(p.q, q.b, q.h, q.l, d);
      }
      for (std::size_t d = 0; dropout(p, q, j) != 0 && d < p.Dv; ++d)
        out.v[key * p.Dv + d] +=
            weights[j] * dropout(p, q, j) * element(in.grad_context, q.b, q.h, q.l, d);
    }
    if (!std::isinf(sink(p, q)))
      out.sinks[q.h] +=
          std::exp(sink(p, q) - forward.logsumexp[i]) * (grad_logsumexp - out.delta[i]);
  }
  return out;
}

}  // namespace attn::kernel::reference
