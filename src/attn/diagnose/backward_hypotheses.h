// Mistakes of backward passes: what else than the derivatives of its job a kernel may have
// computed.
#pragma once

#include <vector>

#include "attn/diagnose/hypotheses.h"

namespace attn {

/// All hypotheses about gradients: of the backward pass alone, those of hypotheses(), and those
/// that recompute other weights in the backward pass than in the forward pass.
std::vector<Hypothesis> gradient_hypotheses();

}  // namespace attn
