// Derivatives of the operations on tensors, for attention/grad_ops.h. All tensors are float64.
//
// g is the derivative of a loss by the result of an operation, and has its shape. Each function
// returns the derivatives by the operands. A 0 in g remains 0, even times NaN or infinity: what is
// hidden has the derivative 0, and its own NaN reaches no derivative.
//
// Formulas: docs/semantics.md, section Gradients.
#pragma once

#include <optional>
#include <span>

#include "attn/attention/rotary.h"
#include "attn/attention/score.h"
#include "attn/problem/inputs.h"
#include "attn/problem/mask.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// g f for elements, 0 where g is 0.
inline double chained(double g, double f) { return g == 0 ? 0 : g * f; }
/// The same for tensors of the same size.
Tensor chained(Tensor g, const Tensor& factors);

Tensor sum_of(Tensor a, const Tensor& b);

/// g (..., m, k) times x (..., k, n); x may have fewer matrices, as in matmul().
Tensor chained_product(const Tensor& g, const Tensor& x);

/// The transpose of g (..., k, m) times x (..., k, n), which has as many matrices.
Tensor transposed_product(const Tensor& g, const Tensor& x);

/// Sums of each key head's query heads: (B, H, N, D) -> (B, G, N, D).
Tensor sum_of_groups(const Tensor& x, std::size_t G);

/// How the weights of queries without keys count: they are constants. NaN would reach derivatives
/// by the parameters, and 0 has the same derivatives otherwise.
constexpr EmptyRows as_constants(EmptyRows empty_rows) {
  return empty_rows == EmptyRows::nan ? EmptyRows::zero : empty_rows;
}

/// The transpose of take_rows(): (..., rows.size(), D) -> (..., N, D), 0 in rows not taken.
Tensor scattered_rows(const Tensor& x, const std::vector<std::size_t>& rows, std::size_t N);

/// Of add_positions() (problem/token_positions.h) by the embeddings; g is (B, L, M).
Tensor positions_derivative(const Tensor& g, Position position);

struct NormDerivatives {
  Tensor x, weight, bias;  ///< those of an absent weight or bias are as for (1, D)
};
/// Of qk_normalised() (attention/qk_norm.h).
NormDerivatives norm_derivatives(const Tensor& g, const Tensor& x,
                                 const std::optional<Tensor>& weight,
                                 const std::optional<Tensor>& bias, const Options& options);

/// Of rotated() by the angles, in their shape; x is its operand.
Angles angle_derivatives(const Tensor& g, const Tensor& x, const Angles& angles, Rotary::Kind kind);

/// The transpose of the lookup of rotary_angles() in a table: (B or 1, N, r/2) -> `shape`.
Tensor table_derivative(const Tensor& g, const Tensor& positions, const Shape& shape);

struct ScoreDerivatives {
  Tensor queries, keys;
  ScoreWeights<Tensor> weights;  ///< of those that are given
};
/// Of score(); g is (B, H, L, S).
ScoreDerivatives score_derivatives(const Tensor& g, const Tensor& queries, const Tensor& keys,
                                   const ScoreWeights<Tensor>& weights, Score kind);

/// Of bias_of_scores() by its tensor; g is (B, H, R, S).
Tensor bias_derivative(const Tensor& g, const GivenBias<Tensor>& bias, const Inputs& in);

/// Adds `part`, times `factor` if the bias has axes of queries and keys, to the derivative by a
/// whole bias: that of head h of batch item b, in these rows or, if nullptr, in all. `part` may
/// have all queries and keys though the bias has one row or column for all.
void add_bias_derivative(const Tensor& part, Input input, std::size_t b, std::size_t h,
                         const std::vector<std::size_t>* rows, double factor, Tensor& whole);

/// What normalise() got and returned.
struct Normalised {
  Tensor masked, weights, logsumexp;
  VisibleKeys visible;
  std::optional<Tensor> sinks;
};
struct NormaliserDerivatives {
  Tensor masked, sinks;  ///< sinks (H), 0 without sinks
};
/// By the weights: g is (B, H, R, S). Errors: data, if top_k selects one of equal scores.
NormaliserDerivatives weights_derivatives(const Tensor& g, const Normalised& n,
                                          const Options& options);
/// By the logsumexp, a natural logarithm: g is (B, H, R).
NormaliserDerivatives logsumexp_derivatives(const Tensor& g, const Normalised& n,
                                            const Options& options);

}  // namespace attn
