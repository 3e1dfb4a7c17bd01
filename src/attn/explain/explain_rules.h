// Which of a job's choices have a formula short enough to be worked out, and what it is.
#pragma once

#include <vector>

#include "attn/explain/explain_source.h"
#include "attn/report/math.h"

namespace attn {

/// Whether queries and keys meet as they are shown: not normalised, not turned by their positions.
bool plain_vectors(const ExplainSource& source);

/// Whether weights are exp(s - max s) / sum exp(s - max s) and nothing else.
bool plain_softmax(const ExplainSource& source);

/// "Q K^T" or "cos(Q, K)"; nothing for the other score functions.
std::vector<Math> score_formula(const Options& options);

/// A score with scale and softcap put on it; `width` is D.
Math scaled(const Math& value, double width, const Options& options);

}  // namespace attn
