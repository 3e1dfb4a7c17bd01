#include "attn/diagnose/hypotheses.h"

#include "attn/diagnose/rule_hypotheses.h"

namespace attn {

std::vector<Hypothesis> hypotheses() {
  std::vector<Hypothesis> all;
  for (const Hypotheses some :
       {storage_hypotheses(), page_hypotheses(), projection_hypotheses(), scale_hypotheses(),
        causal_hypotheses(), head_hypotheses(), softcap_hypotheses(), mask_hypotheses(),
        bias_hypotheses(), sink_hypotheses(), operand_hypotheses(), cache_hypotheses(),
        softmax_hypotheses(), output_hypotheses()})
    all.insert(all.end(), some.begin(), some.end());
  const std::vector<Hypothesis> of_rules = rule_hypotheses();
  all.insert(all.end(), of_rules.begin(), of_rules.end());
  return all;
}

}  // namespace attn
