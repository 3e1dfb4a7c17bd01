// The definition of what attend() computes, in plain loops over one query after the other. The fast
// kernels are tested against it; nothing else uses it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/kernel/problem.h"
#include "attn/kernel/rows.h"

namespace attn::kernel {

/// All outputs, contiguous and without padding.
template <class N>
struct Reference {
  std::vector<N> scores, scaled, masked, weights;  ///< (B, H, L, S)
  std::vector<N> context;                          ///< (B, H, L, Dv)
  std::vector<N> logsumexp;                        ///< (B, H, L)
};

/// Computes all outputs in N, for example long double.
template <class N, class T>
Reference<N> attend_reference(const Problem<T>& p) {
  constexpr N kHidden = -std::numeric_limits<N>::infinity();
  const std::size_t queries = p.B * p.H * p.L;
  const std::vector<N> matrix(queries * p.S);
  Reference<N> out{
      matrix, matrix, matrix, matrix, std::vector<N>(queries * p.Dv), std::vector<N>(queries)};
  const auto cap = [&](N x) { return p.softcap * std::tanh(x / p.softcap); };

  for (std::size_t i = 0; i < queries; ++i) {
    const std::size_t b = i / p.L / p.H, h = i / p.L % p.H, g = h / (p.H / p.G), l = i % p.L;
    const Matrix q = matrix_of(p.q, b, h), k = matrix_of(p.k, b, g), v = matrix_of(p.v, b, g);
    Row<T> row;  // this query's key range, sink, biases and masks
    make_rows(p, Results<T>(), i, 1, &row);
    N *const scores = &out.scores[i * p.S], *const scaled = &out.scaled[i * p.S];
    N *const masked = &out.masked[i * p.S], *const weights = &out.weights[i * p.S];
    N max = kHidden;

    for (std::size_t j = 0; j < p.S; ++j) {
      for (std::size_t d = 0; d < p.D; ++d) scores[j] += N(element(q, l, d)) * element(k, j, d);
      scaled[j] = p.scale * scores[j];
      if (p.softcap > 0 && !p.softcap_last) scaled[j] = cap(scaled[j]);
      masked[j] = scaled[j];
      if (row.distances) masked[j] += row.distances[j];
      for (std::size_t m = 0; m < p.biases.size(); ++m)
        if (row.biases[m]) masked[j] += row.biases[m][j * p.biases[m].strides.column];
      if (p.softcap > 0 && p.softcap_last) masked[j] = cap(masked[j]);
      if (!sees(p, row, j)) masked[j] = kHidden;
      if (masked[j] / p.temperature > max) max = masked[j] / p.temperature;  // NaN is ignored
    }

    max = std::max(max, N(row.sink));
    const N origin = max == kHidden ? N(0) : max;  // keeps exp() within its range
    N sum = std::exp(row.sink - origin);
    bool sees_any = false;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!sees(p, row, j)) continue;
      sees_any = true;
      sum += weights[j] = std::exp(masked[j] / p.temperature - origin);
    }
    out.logsumexp[i] = std::isinf(max) && max > 0 ? max : origin + std::log(sum);

    const bool empty = !sees_any && sum == 0;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (empty) weights[j] = row.range.padding ? N(0) : N(p.empty_weight);
      if (!empty && sees(p, row, j)) weights[j] /= sum;
      if (!empty ? !sees(p, row, j) : weights[j] == 0) continue;  // whatever its value is
      for (std::size_t d = 0; d < p.Dv; ++d)
        out.context[i * p.Dv + d] += weights[j] * N(element(v, j, d));
    }
  }
  return out;
}

}  // namespace attn::kernel
