// The operations of the formula on tensors: the reference path, which the fused kernels are tested
// against.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/attention/score.h"
#include "attn/problem/inputs.h"
#include "attn/problem/mask.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

class TensorOps {
 public:
  using Value = Tensor;
  using Visible = VisibleKeys;

  /// Both must outlive this object.
  explicit TensorOps(const Inputs& inputs) : in_(inputs) {}

  Tensor evaluated(Output, Tensor value) const { return value; }
  Tensor given(Input input) const { return *in_[input]; }
  /// The rows that are computed: (..., L, D) -> (..., rows, D).
  Tensor chosen_rows(Tensor x) const;

  Tensor positions() const;
  Tensor add_positions(const Tensor& embeddings) const;
  Tensor input_normalised(Tensor x, const std::optional<Tensor>& weight,
                          const std::optional<Tensor>& bias) const;
  Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
                 Output stage) const;
  Tensor split_heads(Tensor x, std::size_t heads) const;
  Tensor clipped(Tensor x) const;
  Tensor qk_normalised(Tensor x, const std::optional<Tensor>& weight,
                       const std::optional<Tensor>& bias) const;
  Tensor rotated_queries(Tensor queries, const std::optional<Tensor>& cos,
                         const std::optional<Tensor>& sin) const;
  Tensor rotated_keys(Tensor keys, const std::optional<Tensor>& cos,
                      const std::optional<Tensor>& sin) const;
  Tensor scaled_by_position(Tensor queries) const;
  Tensor append(const Tensor& before, const Tensor& behind) const;
  Tensor append_zero(const Tensor& x) const;

  Tensor score(const Tensor& queries, const Tensor& keys,
               const ScoreWeights<Tensor>& weights) const;
  Tensor scale(const Tensor& scores, const std::optional<Tensor>& head_scale) const;
  std::pair<Tensor, VisibleKeys> mask(const Tensor& scaled, const Biases<Tensor>& biases) const;
  /// Weights and logsumexp.
  std::pair<Tensor, Tensor> normalise(const Tensor& masked, const VisibleKeys& visible,
                                      const std::optional<Tensor>& sinks) const;
  /// A natural logarithm, or a derivative by one, in base lse_base.
  Tensor in_lse_base(const Tensor& logsumexp) const;
  /// The same for the output logsumexp, with lse_empty for -inf.
  Tensor reported_logsumexp(const Tensor& natural) const;
  Tensor dropped(const Tensor& weights) const;
  Tensor mean_over_heads(const Tensor& weights) const;
  Tensor sum_over_queries(const Tensor& weights) const;
  Tensor row_statistic(Output statistic, const Tensor& matrix) const;
  Tensor weighted_values(const Tensor& weights, const Tensor& values,
                         const VisibleKeys& visible) const;
  Tensor sigmoid(const Tensor& x) const;
  Tensor gated(const Tensor& context, const Tensor& gates) const;
  Tensor divided(const Tensor& x, double divisor) const;
  Tensor join_heads(const Tensor& head_context) const;
  Tensor swap_batch_and_heads(const Tensor& x) const;

 private:
  Position position() const;

  const Inputs& in_;
};

}  // namespace attn
