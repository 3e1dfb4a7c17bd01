// Which keys a query sees, and what is added to their scores.
#pragma once

#include <optional>

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Scores after masking, and what was masked.
struct Masked {
  Tensor scores;   ///< (B, H, L, S): scaled scores plus an additive mask; -inf where hidden
  Tensor visible;  ///< (B, H, L, S), boolean. A visible score can be -inf by itself: not the same
};

/// Query i sees key j when the boolean mask, the additive mask (not -inf), causality and the window
/// all let it. A hidden score is -inf whatever it was, NaN included.
///
/// `scaled` (B, H, R, S) has the rows `rows` of L queries; `mask`, boolean or of scaled's dtype,
/// has four axes which are 1 or those of (B, H, L, S).
Masked mask_scores(const Tensor& scaled, const std::optional<Tensor>& mask, const Options& options,
                   const std::vector<std::size_t>& rows, std::size_t L);

}  // namespace attn
