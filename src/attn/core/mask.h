// Masks: visible keys, and biases of scores.
#pragma once

#include <utility>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What each query sees. Masked scores do not show this, because a visible score can be -inf.
struct VisibleKeys {
  Tensor keys;                ///< (B, H, R, S), boolean
  std::vector<bool> padding;  ///< (B, R): beyond its batch row's length; EmptyRows does not apply
};

/// Masked scores (B, H, R, S) and what was masked. Query i sees key j when the boolean mask, the
/// additive mask (not -inf), causality, the window, documents and lengths all allow it; appended
/// keys are always visible. The additive mask, ALiBi and the relative bias are added, then comes a
/// softcap with SoftcapOrder::after_mask. Hidden scores are -inf, even if they were NaN. `scaled`
/// (B, H, R, S) has the rows in.rows of L queries.
std::pair<Tensor, VisibleKeys> mask_scores(const Tensor& scaled, const Inputs& in,
                                           const Options& options);

/// The rows of a mask for in.rows, with columns for appended keys, which every query sees.
Tensor fitted_mask(const Tensor& mask, const Inputs& in, MaskPolarity polarity);

}  // namespace attn
