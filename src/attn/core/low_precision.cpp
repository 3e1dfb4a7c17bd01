#include "attn/core/low_precision.h"

#include <optional>
#include <utility>

#include "attn/core/formula.h"
#include "attn/core/layout.h"
#include "attn/core/score.h"
#include "attn/core/tensor_ops.h"

namespace attn {
namespace {

/// The operations of the formula, each rounded to the stored dtype. Formula rounds the value of
/// each output with evaluated(); these are the operations of which an output has several.
class RoundedOps : public TensorOps {
 public:
  /// `key_scale`: 1 if the scale is not applied to the keys.
  RoundedOps(const Inputs& inputs, DType stored, double key_scale)
      : TensorOps(inputs), stored_(stored), key_scale_(key_scale) {}

  Tensor evaluated(Output, const Tensor& value) const { return rounded(value); }

  Tensor add_positions(const Tensor& embeddings) const {
    return rounded(TensorOps::add_positions(embeddings));
  }
  Tensor input_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                          const std::optional<Tensor>& bias) const {
    return rounded(TensorOps::input_normalised(x, weight, bias));
  }
  Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
                 Output stage) const {
    return rounded(TensorOps::project(x, W, b, stage));
  }
  Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                       const std::optional<Tensor>& bias) const {
    return rounded(TensorOps::qk_normalised(x, weight, bias));
  }
  Tensor rotated_queries(const Tensor& x, const std::optional<Tensor>& cos,
                         const std::optional<Tensor>& sin) const {
    return rounded(TensorOps::rotated_queries(x, cos, sin));
  }
  Tensor rotated_keys(const Tensor& x, const std::optional<Tensor>& cos,
                      const std::optional<Tensor>& sin) const {
    return rounded(TensorOps::rotated_keys(x, cos, sin));
  }

  Tensor score(const Tensor& queries, const Tensor& keys,
               const ScoreWeights<Tensor>& weights) const {
    if (key_scale_ == 1) return TensorOps::score(queries, keys, weights);
    Tensor scaled = cast(keys, DType::f32);
    for (float& key : scaled.mutable_data<float>()) key *= static_cast<float>(key_scale_);
    return TensorOps::score(cast(queries, DType::f32), rounded(scaled), weights);
  }

  Tensor weighted_values(const Tensor& weights, const Tensor& values,
                         const VisibleKeys& visible) const {
    return rounded(TensorOps::weighted_values(weights, values, visible));
  }

 private:
  Tensor rounded(const Tensor& x) const {
    return is_float(x.dtype()) ? cast(cast(x, stored_), DType::f32) : x;
  }

  const DType stored_;
  const double key_scale_;
};

}  // namespace

Tensor low_precision(Output output, const Inputs& in, DType stored) {
  const bool scales_keys = in.options.score == Score::dot && output != Output::scores;
  Inputs scaled = in;  // shares the tensors
  if (scales_keys) scaled.scale = {};
  const RoundedOps ops(scaled, stored, scales_keys ? in.scale.factor() : 1);
  Formula<const RoundedOps> formula(ops, scaled);
  return to_user_layout(output, formula.at(same_numbers_as(output)), scaled);
}

}  // namespace attn
