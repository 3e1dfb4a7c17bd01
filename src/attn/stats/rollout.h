// Attention rollout: how much each token of the last layer attends to each token of the input, with
// the residual connections (Abnar and Zuidema 2020, section 3, arXiv:2005.00928).
#pragma once

#include <optional>

#include "attn/tensor/tensor.h"

namespace attn {

enum class HeadFusion { mean, max, min };

struct RolloutOptions {
  HeadFusion heads = HeadFusion::mean;  ///< how the weights of heads become one matrix
  double residual = 0.5;                ///< share of the residual connection, 0 to 1
  double discard = 0;                   ///< share of the smallest weights of a layer to set to 0
};

/// With W the fused weights of a layer, of which the smallest floor(discard L^2), other than the
/// first element, are 0:
///   A = (1 - residual) W + residual I, each row divided by its sum
///   R = A R of the layer before; R = A of the first layer
/// Rows whose sum is 0 stay 0.
class Rollout {
 public:
  explicit Rollout(RolloutOptions options) : options_(options) {}

  /// `weights` is (B, H, L, L), of the same B and L for all layers. Errors: data.
  void add_layer(const Tensor& weights);
  bool has_layers() const { return result_.has_value(); }
  /// R (B, L, L), f64. At least one layer has been added.
  const Tensor& result() const { return *result_; }

 private:
  RolloutOptions options_;
  std::optional<Tensor> result_;
};

}  // namespace attn
