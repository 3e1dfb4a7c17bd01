// The stages of the backward pass of --explain: from the derivative of a loss with respect to the
// context to those with respect to queries, keys, values, projections and embeddings.
// docs/semantics.md, section Gradients, has the formulas.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/explain/explain_source.h"
#include "attn/explain/worked_steps.h"

namespace attn {

struct GradientStage {
  std::string heading, words;
  std::vector<Derivation> derivations;
};

/// How matrices with a row for each query, and for each key, are written.
struct GradientLayout {
  std::size_t key;  ///< whose numbers are computed step by step, beside those of the query
  std::function<Math(const FormulaMatrix&)> of_queries, of_keys, of_queries_and_keys;
};

/// The option or input of the job because of which gradients are not explained; "" if they are.
std::string unexplained_gradients(const ExplainSource& from);

/// `from` has grad_context and no reason not to explain its gradients.
std::vector<GradientStage> gradient_stages(const ExplainSource& from, const GradientLayout& layout);

}  // namespace attn
