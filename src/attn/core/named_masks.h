// Keys of jobs that stand for mask rules in common use. Each one becomes a rule of
// core/mask_rule.h, with its tables:
//
//   chunk C              q // C == k // C
//   sink_tokens N        k < N or q - k <= LEFT and k - q <= RIGHT    instead of window
//   prefix_lengths (B)   k < prefix_lengths[b] or q >= k              instead of causal
//   tree_parents (N)     j < S - N or ancestors[i, j - S + N]
//   blocks (m, n)        blocks[i // M, j // N]                       with block_size M, N
//
// The nodes of a tree are the last N queries and the last N keys of each batch item. Each node sees
// itself, the nodes on its way to the root and all keys before the tree (tree attention: SpecInfer,
// arXiv:2305.09781; Medusa, arXiv:2401.10774).
#pragma once

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

bool has_named_masks(const TensorMap& tensors, const Options& options);

/// Replaces these keys, and the masks that they include, by Options::mask_rule and tables. Keys and
/// values are not in pages. Errors: data.
void replace_named_masks(TensorMap& tensors, Options& options);

}  // namespace attn
