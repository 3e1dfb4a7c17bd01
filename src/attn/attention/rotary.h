// Rotary positions: queries and keys are rotated by angles proportional to their positions, so that
// their product depends on the distance (Su et al. 2021, arXiv:2104.09864).
#pragma once

#include <optional>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (B, N, r / 2) or (1, N, r / 2), f64: cosines and sines of the angles of each token's pairs.
struct Angles {
  Tensor cos, sin;
};

/// Angles p * f_k of the positions p (B or 1, N), int64, with r = rotary.width, or D if that is 0:
///   f_k = base^(-2k / r), 0 <= k < r / 2, then by rotary.scaling
///   linear: f_k / factor                                       Chen et al. 2023, arXiv:2306.15595
///   ntk:    base * factor^(r / (r - 2)) instead of base
///   dynamic_ntk: ntk with factor * l / original_length - (factor - 1) as the factor, where l is
///           the larger of original_length and 1 + in.last_position    transformers, "dynamic"
///   yarn:   f_k / factor if a pair turns less than beta_slow times in original_length, f_k
///           if more than beta_fast times, a ramp over k in between; cosines and sines times
///           attention_factor                                   Peng et al. 2023, arXiv:2309.00071
///   llama3: f_k / factor if the wavelength 2 pi / f_k is over original_length /
///           low_frequency_factor, f_k below original_length / high_frequency_factor, linear in
///           original_length / wavelength between
///   longrope: f_k / d_k, with d = long_factor if in.last_position >= original_length, otherwise
///           short_factor; cosines and sines times attention_factor, by default
///           sqrt(1 + log(factor) / log(original_length)), or 1 if factor <= 1
///                                                              Ding et al. 2024, arXiv:2402.13753
/// With cos and sin, (positions, r / 2) or (B or 1, N, r / 2), the angles from these tables
/// instead.
Angles rotary_angles(const Inputs& in, const Tensor& positions, const std::optional<Tensor>& cos,
                     const std::optional<Tensor>& sin);

/// Bounds of the errors of both cosines and sines, (B or 1, N, r / 2), f64, when a computation with
/// this unit roundoff rounds each operation of the formulas above once, and cosines and sines
/// twice. Not for the inputs cos and sin.
Tensor rotary_angle_errors(const Inputs& in, const Tensor& positions, double unit);

/// Calls f(i, j, angle) with the indices of both elements of each rotated pair of x
/// (B, heads, N, D), and of its cosine and sine.
template <class F>
void each_rotated_pair(const Shape& x, const Angles& angles, Rotary::Kind kind, F f) {
  const std::size_t heads = x[1], N = x[2], D = x[3];
  const std::size_t pairs = angles.cos.shape()[2], rows = angles.cos.shape()[0] * N;
  const bool half = kind == Rotary::Kind::half;
  for (std::size_t row = 0; row < x[0] * heads * N; ++row) {
    const std::size_t b = row / N / heads, angle = (b * N + row % N) % rows;
    for (std::size_t k = 0; k < pairs; ++k) {
      const std::size_t first = row * D + (half ? k : 2 * k);
      f(first, first + (half ? pairs : 1), angle * pairs + k);
    }
  }
}

/// x (B, heads, N, D) with each pair (a, b) of its first r columns rotated to
/// (a cos - b sin, a sin + b cos); in doubles, rounded once to `compute`.
Tensor rotated(const Tensor& x, const Angles& angles, Rotary::Kind kind, DType compute);

}  // namespace attn
