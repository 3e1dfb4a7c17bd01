// Bounds of the rounding errors of a result computed correctly in a given precision. `attn compare
// --reference` checks results against them.
//
// First-order rounding-error analysis, element by element, over the stages of the problem itself
// (Higham 2002, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 3; softmax and
// logsumexp as Blanchard, D. and N. Higham 2021, doi:10.1093/imanum/draa038). With
//
//   r, f, s   unit roundoffs of stored values, of the factors of matrix products and of sums and
//             functions (f counts for inputs only if it is coarser than r)
//   g(n)      min(n, 4 sqrt(n)), the growth of n roundings: n is the worst case, and more than
//             4 sqrt(n) is practically impossible (Higham and Mary 2019, doi:10.1137/18M1226312)
//   e(x)      the error of x; for an input, the error of rounding it to the stored dtype (0 for
//             the float16 inputs of a float16 kernel)
//   c(n)      g(n) s + 2 f
//
// the error bounds are
//
//   X W + b   e(X) |W| + |X| e(W) + c(M) |X| |W| + e(b) + g(M) s |b| + s |.|, stored: + r |.|
//   norms     u = x / n: (e(x) / n + |u| p) / (1 - p), p = |e(x)| / n + (g(d) / 2 + 6) s, where
//             |.| is the norm of d columns, and n is at least epsilon; layer: first e(x) + the
//             means of e(x) and g(d) s |x|; then e(u) |w| + |u| (e(w) + r |w|) + e(b) + s |.|,
//             stored: + r |.|
//   rotated   a cos - b sin: e(a) |cos| + |a| (e(cos) + r |cos|) + the same for b and sin, stored:
//             + r |.|; e(cos) = m (min(2, e(angle)) + 2 s) + e(m) + r |m cos|, where m is the
//             attention factor and running error analysis gives e(angle) and e(m); |a| r because
//             cosines, sines and products may be stored
//   scores    e(Q) |K|' + |Q| e(K)' + c(D) |Q| |K|'; with factors in bfloat16: after
//             e(x) + 2^-8 (|x| + e(x)), or the distance of an exact x to its rounded value, with
//             e(Q) e(K)' and D 2^-126 more
//   scaled    the scale times that, + 4 s |.|; softcap: + 4 s |.| more; with a scale h of each
//   head,
//             |h| times that, + e(h) |scaled without h|
//   masked    with n biases b, in any order: + (2 s + r if one is not representable) sum |b|
//             + (n - 1) s (|scaled| + sum |b|) + s |.|; divided by temperature
//   weights   w (exp(t) - 1), t = n + sum_k w_k n_k + g(S) s + 2 s,
//             n = e(masked) + 2 s (|x| + |max x|) + 4 s: the argument of exp, and exp itself
//             at most max(w, 1 - w) + (g(S) + 4) s, because w and its computed value are at most 1
//             a sink counts as a key; with softmax.precision, whose unit roundoff is p: 2 p |x| in
//             n and 2 p w more, for the result and the rounded reference, and s is the sum of both
//   logsumexp sum_k w_k n_k + (g(S) + 4) s + 2 s |.|
//   entropy   sum_k (e(w_k) + tiny) (1 + |log w_k|) + (g(S) + 3) s w_k |log w_k|
//   context   e(w) |V| + w e(V) + c(S) w |V| + f min(w |V|, |w V| + 4 |w V|_2) + 4 tiny |V|_2
//             because weights are factors, too, and may become subnormal; what their roundings have
//             in common changes w V by as much; f w |V| if f <= s; f and tiny are those of the type
//             to which weights are rounded, if it is given
//             with factors in bfloat16: e(w) |V| + w e(V) + c(S) w |V|, after the same roundings
//             of w and V as of Q and K, with e(w) e(V) and S 2^-126 more
//   output    as X W + b, where X is the stored context
//
// For the result itself, r |.| and the smallest positive number are added for storing it.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// How a computation rounds.
struct Precision {
  std::string name;       ///< "f16", "tf32", "bf16 with sums in bf16"
  DType stored;           ///< of inputs and results
  double result, factor;  ///< unit roundoffs, r and f
  double sum;             ///< s
  double least;           ///< absolute error of stored values near 0
  /// Those of weights as factors of values, if they are coarser; 0: r or f, and `least`.
  double weight = 0, least_weight = 0;
  bool has_wide_results = false;  ///< outputs other than gradients are stored in float32
};

/// f64, f32, tf32, f16 or bf16; nullopt for any other name. Sums are in float64 for f64, otherwise
/// in float32. tf32 is float32 with matrix products that use 10 mantissa bits of their factors.
std::optional<Precision> precision_named(std::string_view name);

/// `precision`, but with sums and functions computed in the precision `sums`.
Precision with_sums_in(Precision precision, const Precision& sums);

/// `precision`, but with weights that are rounded to f16, bf16, e4m3 or e5m2 before they multiply
/// the values. The weights are at most 1, as after exp(x - max x). Kernels that multiply them by a
/// power of two before they round have smaller errors.
Precision with_weights_in(Precision precision, std::string_view type);

/// Why this output of the problem has no error bound; "" if it has one. There are bounds
/// for queries, keys, values and, with dot products and softmax over keys, for everything from
/// scores to output, with any masks. bounds/gradient_error.h has those of gradients.
std::string missing_bound_reason(const Request& request, const Inputs& in);

/// The precision in which this output of the problem is computed: `precision`, named after the
/// products if `options` round their factors, which widens its bound.
Precision precision_of(const Request& request, const Options& options, Precision precision);

/// The errors of inputs when they are stored, for computations that share inputs and precision.
/// Thread-safe.
class InputErrors {
 public:
  template <class Compute>
  Tensor of(Input input, const Compute& compute) {
    const std::lock_guard lock(mutex_);
    const auto found = errors_.find(input);
    return found != errors_.end() ? found->second : errors_.emplace(input, compute()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Input, Tensor> errors_;
};

/// The error bound of each element of an output or gradient, f64, in the shape of attend()'s
/// result. `in` must be computed in f64. For f64 the bound is doubled, because the reference has
/// the same rounding errors. The bounds of NaN and infinite elements are unspecified: compare these
/// for equality. Errors: data, if an input does not fit the stored dtype.
Tensor expected_error(const Request& request, const Inputs& in, const Precision& precision,
                      InputErrors* known = nullptr);

/// An output and its error bound, computed together.
struct Expected {
  Tensor value;  ///< that of attend(), except for the last bits if is_expected_in_parts()
  Tensor error;  ///< that of expected_error()
};
Expected expected(Output output, const Inputs& in, const Precision& precision,
                  InputErrors* known = nullptr);

/// Whether expected() computes some heads and queries of this output at a time.
bool is_expected_in_parts(Output output, const Inputs& in);

/// An upper bound of the memory of expected() or expected_error(), in bytes, beside the results.
std::size_t bytes_of_expected(const Request& request, const Inputs& in);

}  // namespace attn
