// Attention in plain loops in long double, the reference for tests of attention. It shares no
// arithmetic with the program, only the types of the options.
//
// Each result has an error bound for a program with unit roundoff u, from running error analysis
// (Higham 2002, section 3): the error of a sum of n products is at most (n + 2) u times the sum of
// their magnitudes, plus the propagated errors of the operands.
#pragma once

#include <optional>
#include <vector>

#include "attn/problem/options.h"
#include "support/close.h"

namespace oracle {

/// Numbers, with bounds on the errors of the program's results.
struct Numbers {
  std::vector<long double> values;
  long double error = 0;
};

struct Problem {
  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  Numbers Q, K, V;                ///< (B, H, L, D), (B, G, S, D), (B, G, S, Dv)
  std::vector<bool> visible;      ///< (B, H, L, S), the boolean mask; empty: all
  std::vector<long double> bias;  ///< (B, H, L, S), the additive mask; empty: 0
  std::vector<std::size_t> rows;  ///< the queries to compute
  attn::Options options;          ///< score, scale, softcap, causal, window, axis, empty_rows
  bool exact_scores = false;      ///< of integers
  long double u = 0x1p-53L;       ///< of the precision in which the program computes
};

/// All with R = rows.size() in place of L.
struct Solution {
  Numbers scores, scaled_scores, masked_scores, weights;  ///< (B, H, R, S)
  Numbers logsumexp;                                      ///< (B, H, R)
  Numbers head_context;                                   ///< (B, H, R, Dv)
};

Solution solve(const Problem& problem);

/// x (N, M) W (M, P) + b (P); no W: the identity, no b: 0. Exact when u is 0.
Numbers project(const Numbers& x, const std::vector<long double>* W,
                const std::vector<long double>* b, std::size_t M, std::size_t P, long double u);

/// (L, M): sines and cosines of the positions.
Numbers positions(const attn::Position& position, std::size_t L, std::size_t M);

/// (B, L, M): the embeddings scaled, plus the positions.
Numbers add_positions(const Numbers& embeddings, const Numbers& positions,
                      const attn::Position& position, std::size_t L, std::size_t M, long double u);

/// Broadcasts values of shape `from` (each axis 1 or that of `to`) to `to`.
std::vector<long double> broadcast(const std::vector<long double>& values, const attn::Shape& from,
                                   const attn::Shape& to);

/// (B, heads, N, D) from (B, N, heads * D), and back.
Numbers split(const Numbers& packed, std::size_t B, std::size_t N, std::size_t heads,
              std::size_t D);
Numbers join(const Numbers& heads_apart, std::size_t B, std::size_t N, std::size_t heads,
             std::size_t D);

/// Converts to the type that difference() expects: adds the rounding of unit `result_u` to the
/// result's dtype.
Expected expected(const Numbers& numbers, const attn::Shape& shape, long double result_u);

}  // namespace oracle
