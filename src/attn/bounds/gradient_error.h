// Bounds of the rounding errors of gradients that a kernel computes in a given precision, in the
// letters of bounds/expected_error.h, which has the bounds of results.
//
// With dO, dL the derivatives by context and logsumexp, P and A the weights before and after
// dropout, m = A / P, O the stored context, D = sum dO O, y the capped score, c the softcap:
//
//   dP      (e(dO) |V|' + |dO| e(V)' + c(Dv) |dO| |V|') m + 3 s |.| with dropout
//   D       min(sum |dO| e(O), 4 sqrt(sum (dO e(O))^2)) + sum e(dO) |O| + g(Dv) s sum |dO| |O|
//   dx      e(P) |dP - D + dL| + P (e(dP) + e(D) + e(dL)) + 3 s P (|dP| + |D| + |dL|)
//   ds      dx / temperature: e(dx) + 2 s |.|; with softcap also |.| (2 |y| e(y) / c^2 + 6 s)
//   dV      e(A)' |dO| + |A|' e(dO) + c(L) |A|' |dO| + f min(|A|' |dO|, |.| + 4 |A|'_2 |dO|_2)
//             + 4 tiny |dO|_2, because weights are factors, too, and may become subnormal
//   dQ, dK  scale times the same of ds and K or Q, + 4 s |.|
//   dbias   sum e(ds) + g(n) s sum |ds|, over n elements
//   dsinks  sum p (|dL| + |D|) (e(logsumexp) + 2 s (|sink| + |logsumexp|) + 8 s)
//             + sum p (e(D) + e(dL)), p the share of the sink
//
//   dcos    sum (e(g) |x| + (|g| + e(g)) e(x)) + (r + g(n) s) sum |g x|, over the n products
//
// bounds/norm_error.h has those of norms. Heads that share keys add up. Derivatives are stored
// before they are passed through rotations and projections, whose own derivatives are such
// operations again. delta is D.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Why gradients, and delta, have no error bound; "" if they have one.
std::string missing_gradient_bound_reason(const Inputs& in);

/// Gradients or deltas and their error bounds, in the order of `requests`, computed together. Both
/// as expected_error(): where a gradient, its operands or products are not finite, unspecified.
std::vector<Expected> expected_gradients(const std::vector<Request>& requests, const Inputs& in,
                                         const Precision& precision);

/// An upper bound of its memory, in bytes.
std::size_t bytes_of_expected_gradients(const std::vector<Request>& requests, const Inputs& in);

}  // namespace attn
