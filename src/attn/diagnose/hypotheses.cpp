#include "attn/diagnose/hypotheses.h"

#include "attn/diagnose/rule_hypotheses.h"

namespace attn {

Hypotheses hypotheses() {
  Hypotheses all;
  for (const auto table :
       {storage_hypotheses, page_hypotheses, projection_hypotheses, scale_hypotheses,
        causal_hypotheses, head_hypotheses, softcap_hypotheses, mask_hypotheses, bias_hypotheses,
        sink_hypotheses, operand_hypotheses, cache_hypotheses, softmax_hypotheses,
        logsumexp_hypotheses, output_hypotheses, rule_hypotheses})
    for (Hypothesis& hypothesis : table()) all.push_back(std::move(hypothesis));
  return all;
}

}  // namespace attn
