// Bounds of the errors of norms (attention/qk_norm.h) and of their derivatives, in the letters of
// bounds/expected_error.h, which has the norms themselves.
//
// With g the derivative by the result, u = x / n the normalised columns, p the relative error of n,
// q = p / (1 - p), or less where epsilon limits 1 / n, h = w g, and mean a sum for l2:
//
//   u    as in bounds/expected_error.h, + r |u|, because kernels may store it
//   h    e(g) |w| + |g| e(w) + (s + r) |h|
//   a    mean(e(u) |h| + |u| e(h)) + (g(d) + 1) s mean |u h|     a = mean(u h)
//   dx   (e(h) + e(mean h) + e(u) |a| + (|u| + e(u)) e(a) + 3 s |.|) (1 + q) / n + |dx| q
//   dw   sum (e(g) |u| + |g| e(u)) + g(N) s sum |g u| + min(r sum |g u|, 4 r |g u|_2)
//   db   sum e(g) + g(N) s sum |g|                               over N tokens
#pragma once

#include <optional>
#include <span>

#include "attn/bounds/bounds.h"
#include "attn/bounds/expected_error.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Of the columns of one token.
struct TokenNorm {
  double norm;      ///< what divides the columns
  double relative;  ///< bound of its relative error
};

/// normalise_columns() (attention/qk_norm.h); `errors` become those of the result. `unit` is s.
TokenNorm normalise_columns(std::span<double> x, std::span<double> errors, const Options& options,
                            double unit);

struct NormDerivativeErrors {
  Tensor x, weight, bias;  ///< in the shapes of NormDerivatives (attention/derivatives.h)
};
/// Of norm_derivatives(), before they are stored. NaN and infinite elements count as 0.
NormDerivativeErrors norm_derivative_errors(const Bounded& g, const Bounded& x,
                                            const std::optional<Bounded>& weight,
                                            const std::optional<Bounded>& bias,
                                            const Options& options, const Precision& precision);

}  // namespace attn
