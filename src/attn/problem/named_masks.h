// Common masks as options of a job, and the rule (problem/mask_rule.h) that each one adds:
//
//   chunk C              q // C == k // C
//   sink_tokens N        k < N or q - k <= LEFT                 instead of the window's left limit
//   prefix_lengths (B)   k < prefix_lengths[b] or q >= k        instead of causality
//   tree_parents (N)     j < S - N or ancestors[i, j - S + N]
//   blocks (m, n)        blocks[i // M, j // N]                 with block_size M, N
//
// The nodes of a tree are the last N queries and the last N keys of each batch item. Each node sees
// itself, its ancestors and all keys before the tree (tree attention: SpecInfer, arXiv:2305.09781;
// Medusa, arXiv:2401.10774).
//
// Prefixes extend the key range of causality (problem/mask.cpp) and need no rule to be computed.
#pragma once

#include <string>
#include <vector>

#include "attn/problem/axis_lengths.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Adds the rules of a job, which all have to be true, to those in `rules`, and their tables to
/// `tables`. `in` has its lengths and token positions. Problems are added to `axes`.
void add_named_rules(const TensorMap& numbers, const Inputs& in, std::vector<std::string>& rules,
                     TensorMap& tables, AxisLengths& axes);

/// All rules of the job in one expression; "" if it has no such keys.
std::string named_rule(const Inputs& in);

}  // namespace attn
