// The stages of the backward pass of --explain: from the derivative of a loss with respect to the
// context to those with respect to queries, keys, values, projections and embeddings.
// docs/semantics.md, section Gradients, has the formulas.
#pragma once

#include <string>
#include <vector>

#include "attn/explain/explain_source.h"
#include "attn/explain/worked_steps.h"

namespace attn {

struct GradientStage {
  std::string heading, words;
  std::vector<Derivation> derivations;
};

/// The option or input of the job because of which gradients are not explained; "" if they are.
std::string unexplained_gradients(const ExplainSource& from);

/// `from` has grad_context and no reason not to explain its gradients. The numbers of one query and
/// of the first of `keys` are computed step by step. Large matrices show all of `keys`.
std::vector<GradientStage> gradient_stages(const ExplainSource& from,
                                           const std::vector<std::size_t>& keys);

}  // namespace attn
