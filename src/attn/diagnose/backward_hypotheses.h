// Mistakes of backward passes: what else than the derivatives of its job a kernel may have
// computed.
#pragma once

#include <optional>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/output_table.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/variant.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// All hypotheses about gradients: of the backward pass alone, those of hypotheses(), and those
/// that recompute other weights in the backward pass than in the forward pass.
std::vector<Hypothesis> gradient_hypotheses();

/// A gradient of a job, as a kernel with a mistake computes it. Only with dot products and softmax
/// over keys.
class BackwardPass {
 public:
  /// `given` is a job in f64 and `attention` its attention_only() with the same rows. `given` must
  /// outlive this object.
  BackwardPass(const Inputs& given, const Variant& attention, Gradient of);

  /// `variant` is `attention` with other masks, biases, sinks, dropout, scale or softcap, and with
  /// changes of the backward pass. In the layout of the user, f64. Errors: data; usage, if this job
  /// does not have the gradient.
  Tensor gradient(const Variant& variant);

 private:
  /// The forward pass, without gates.
  struct Forward {
    Forward(Variant variant, bool only_scores);
    /// exp(x / temperature - logsumexp of the row) where keys are visible, and 0 elsewhere.
    Tensor weights(const Tensor& of_rows) const;

    /// With its own logsumexp.
    const Tensor& weights() const;

    Inputs in;
    Tensor scaled, masked;  ///< scores (B, H, R, S)
    Tensor logsumexp;       ///< (B, H, R), natural
    Tensor context;         ///< (B, H, R, Dv)
    /// Computed when they are used.
    mutable std::optional<Tensor> right_weights;
    mutable std::optional<std::vector<double>> row_sums;
  };
  class Ops;

  const Inputs& given_;
  const Gradient of_;
  const Variant attention_;
  std::optional<Forward> job_;
  std::optional<Tensor> of_kept_;
};

}  // namespace attn
