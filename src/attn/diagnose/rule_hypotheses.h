// Mistakes about the mask rule of a job, and about masks with names (problem/named_masks.h): limits
// that are off by one, and conditions that are missing.
#pragma once

#include <string>
#include <vector>

#include "attn/base/expression.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {

/// The rules that differ from this one by a number that is one more or one less in all places, or
/// in one place: without one condition of "and" and "or", with < instead of <= or the reverse, and
/// with such a number.
std::vector<std::string> similar_rules(const Expression& rule);

/// "chunk.longer" and others, "rule.dropped", and "rule.changed_1" and others for the first of
/// similar_rules().
Hypotheses rule_hypotheses();

}  // namespace attn
