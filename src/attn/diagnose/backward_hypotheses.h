// Mistakes of backward passes: what else than the derivatives of its job a kernel may have
// computed.
#pragma once

#include <vector>

#include "attn/diagnose/hypotheses.h"
#include "attn/problem/output_table.h"

namespace attn {

/// All hypotheses about a gradient or delta: of the backward pass alone, those of hypotheses(), and
/// those that recompute other weights in the backward pass than in the forward pass.
Hypotheses gradient_hypotheses(const Request& of);

}  // namespace attn
