// The formulas of a job's options that are short enough to print.
#pragma once

#include <vector>

#include "attn/explain/explain_source.h"
#include "attn/report/math.h"

namespace attn {

/// Whether scores are computed from the printed queries and keys, without normalisation or rotary
/// positions.
bool plain_vectors(const ExplainSource& source);

/// Whether weights are exp(s - max s) / sum exp(s - max s), without temperature or sinks.
bool plain_softmax(const ExplainSource& source);

/// "Q K^T" or "cos(Q, K)"; empty for other score functions.
std::vector<Math> score_formula(const Options& options);

/// `value` with scale and softcap applied. `width` is D.
Math scaled(const Math& value, double width, const Options& options);

}  // namespace attn
