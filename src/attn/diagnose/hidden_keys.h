// Kernels in which hidden keys have weights, or only these, and the softmax of a softmax.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/variant.h"

namespace attn {

/// As evaluate(), for head_context and weights of a change of the kind hidden_keys
/// (diagnose/row_changes.h). A bound is the share of the result without masks
/// that its own bound is, times the magnitudes of the terms. Errors: data; usage for another
/// output.
Evaluated evaluate_with_hidden(const Variant& variant, Output output,
                               const std::vector<std::size_t>& rows, const Precision* precision,
                               InputErrors* known);

/// The number for `change`, one of hidden_set, hidden_set_biased and hidden_added, with which these
/// rows of the head_context (B, H, rows, Dv) differ least from `result`; nullopt if there is none.
/// With t = exp(number), the context of the job c, the sums over hidden keys X = sum exp(x) V and
/// n = sum exp(x), both divided by the job's denominator, the kernel has (c + t X) / (1 + t n), so
/// that result - c = t (X - n result), of which t is the least-squares solution, with rows weighted
/// by 1 / (1 + t n). Errors: data.
std::optional<double> fitted_score(const Variant& job, RowChange change,
                                   const std::vector<std::size_t>& rows, const Tensor& result);

}  // namespace attn
