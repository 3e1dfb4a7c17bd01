// How far a result may be from the exact one where it was computed as well as its precision allows:
// what `attn compare --reference` holds kernels to.
//
// First-order rounding-error analysis, element by element, over the stages of the problem itself
// (Higham 2002, Accuracy and Stability of Numerical Algorithms, 2nd ed., chapter 3; softmax and
// logsumexp as Blanchard, D. and N. Higham 2021, doi:10.1093/imanum/draa038). With
//
//   r, f, s   unit roundoffs of what is stored, of the factors of matrix products and of sums and
//             functions (f counts for given factors only where it is coarser than r)
//   g(n)      min(n, 4 sqrt(n)): how n roundings add up. n is the worst case; more than 4 sqrt(n)
//             is as good as impossible (Higham and Mary 2019, doi:10.1137/18M1226312)
//   e(x)      the error that x comes with; of what is given, its distance from itself, rounded to
//             what is stored: 0 for a float16 kernel's float16 inputs
//   c(n)      g(n) s + 2 f
//
// the errors are
//
//   X W + b   e(X) |W| + |X| e(W) + c(M) |X| |W| + e(b) + s |.|, stored: + r |.|
//   scores    e(Q) |K|' + |Q| e(K)' + c(D) |Q| |K|'
//   scaled    the scale times that, + 4 s |.|; softcap: + 4 s |.| more
//   masked    + (2 s + r where biases are not representable) |bias| + s |.|; over a temperature
//   weights   w (exp(t) - 1), t = n + sum_k w_k n_k + g(S) s + 2 s,
//             n = e(masked) + 2 s (|x| + |max x|) + 4 s: the argument of exp, and exp itself
//   logsumexp sum_k w_k n_k + (g(S) + 4) s + 2 s |.|
//   entropy   sum_k (e(w_k) + tiny) (1 + |log w_k|) + (g(S) + 3) s w_k |log w_k|
//   context   e(w) |V| + w e(V) + c(S) w |V| + min(f w |V|, 4 f |w V|_2) + 4 tiny |V|_2
//             as weights are factors, too, and below 1 may become subnormal
//   output    as X W + b, of a context that is stored
//
// and where a result is stored itself, + r |.| + the least number that there is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// How a computation rounds.
struct Precision {
  std::string name;       ///< "f16", "tf32", "bf16 with sums in bf16"
  DType stored;           ///< what is given and what results are kept in
  double result, factor;  ///< unit roundoffs, r and f
  double sum;             ///< s
  double least;           ///< what stored numbers near 0 may be off by
};

/// f64, f32, tf32, f16 and bf16; nothing for another name. Sums are float32, of f64 float64.
/// tf32 is float32 whose matrix products see 10 bits of their factors' mantissas.
std::optional<Precision> precision_named(std::string_view name);

/// Sums and functions in another of these precisions.
Precision with_sums_in(Precision precision, const Precision& sums);

/// Why no error is known for an output of this problem; "" where one is: queries, keys, values and
/// everything from scores to output of dot products and softmax over keys, whatever is masked.
std::string no_error_known(const std::string& name, const Options& options);

/// For each element of the output `name`, shaped as attend() shapes it, f64. `in` is computed in
/// f64. As attend()'s own f64 is rounded, too, f64 counts twice. Elements that are NaN or infinite
/// have any error: they are to be equal. Errors: data, where an input is beyond what is stored.
Tensor expected_error(const std::string& name, const Inputs& in, const Options& options,
                      const Precision& precision);

}  // namespace attn
