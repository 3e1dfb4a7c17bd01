// The result of a variant for some of its queries, in float64, with error bounds.
#pragma once

#include <optional>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/diagnose/variant.h"

namespace attn {

struct Evaluated {
  Tensor values;                 ///< (B, H, rows, C), f64; context as head_context
  std::optional<Tensor> bounds;  ///< the same shape; nullopt if none is known
};

/// The inputs of an attention_only() for these queries, to compute in f64. Errors: data.
Inputs inputs_of_rows(const Variant& variant, const std::vector<std::size_t>& rows);

/// `variant` is an attention_only() and `output` one that depends on scores. `rows` are indices
/// of queries. Without `precision`, there are no bounds. `known`: errors of
/// inputs, for calls with the same variant and precision; may be nullptr.
/// Errors: data; usage, if the variant has no such output.
Evaluated evaluate(const Variant& variant, Output output, const std::vector<std::size_t>& rows,
                   const Precision* precision, InputErrors* known = nullptr);

/// An output that does not depend on scores, or a gradient, of the variant as given, for its own
/// rows.
Evaluated evaluate_given(const Variant& given, const Request& output, const Precision* precision);

}  // namespace attn
