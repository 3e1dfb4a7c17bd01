// Attention over all keys, merged from attention over parts of them.
//
// With o_i and l_i the context and logsumexp of one query over part i of the keys:
//   l = log(sum exp l_i),   o = sum exp(l_i - l) o_i,   weights_i = exp(l_i - l) weights_i
// which is softmax over all keys (Milakov and Gimelshein 2018, arXiv:1805.02867), exact if the
// logsumexps are: an error of e in one of them is a relative error of e in that part's share.
#pragma once

#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

/// Attention over some of the keys. Without batch or heads, the axes B or H are absent.
struct Partial {
  Tensor logsumexp;               ///< (B, H, L)
  Tensor head_context;            ///< (B, H, L, Dv)
  std::optional<Tensor> weights;  ///< (B, H, L, keys of this part)
};

/// Attention over all keys, in the order of the parts; weights if every part has them. Computed in
/// doubles and rounded once, to the widest dtype of the parts; logsumexp to float32 at least. A
/// part in which a query sees no key (-inf) contributes nothing; if it sees none at all, context
/// and weights are 0. `lse_base` is the base of the logarithm in every logsumexp. At least one part
/// is required. Errors: data, naming parts by `names`, if shapes do not agree or elements are not
/// floats.
Partial merge(const std::vector<Partial>& parts, const std::vector<std::string>& names,
              double lse_base = std::numbers::e);

}  // namespace attn
