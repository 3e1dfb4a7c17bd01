#include "attn/attention/low_precision.h"

#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "attn/attention/formula.h"
#include "attn/attention/grad_ops.h"
#include "attn/attention/gradients.h"
#include "attn/attention/score.h"
#include "attn/attention/tensor_ops.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

/// Rounds to the stored dtype. The result has the dtype `compute`.
struct ToStored {
  DType stored, compute;

  Tensor operator()(const Tensor& x) const {
    return is_float(x.dtype()) ? cast(cast(x, stored), compute) : x;
  }
};

template <class T>
Tensor times(const Tensor& x, double factor) {
  Tensor y = cast(x, dtype_of<T>);
  for (T& value : y.mutable_data<T>()) value *= static_cast<T>(factor);
  return y;
}

/// The operations of the formula, each rounded to the stored dtype.
class RoundedOps : public TensorOps {
 public:
  RoundedOps(const Inputs& inputs, ToStored rounded) : TensorOps(inputs), rounded_(rounded) {}

  Tensor evaluated(Output, const Tensor& value) const { return rounded_(value); }

  Tensor add_positions(const Tensor& embeddings) const {
    return rounded_(TensorOps::add_positions(embeddings));
  }
  Tensor input_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                          const std::optional<Tensor>& bias) const {
    return rounded_(TensorOps::input_normalised(x, weight, bias));
  }
  Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
                 Output stage) const {
    return rounded_(TensorOps::project(x, W, b, stage));
  }
  Tensor qk_normalised(const Tensor& x, const std::optional<Tensor>& weight,
                       const std::optional<Tensor>& bias) const {
    return rounded_(TensorOps::qk_normalised(x, weight, bias));
  }
  Tensor rotated_queries(const Tensor& x, const std::optional<Tensor>& cos,
                         const std::optional<Tensor>& sin) const {
    return rounded_(TensorOps::rotated_queries(x, cos, sin));
  }
  Tensor rotated_keys(const Tensor& x, const std::optional<Tensor>& cos,
                      const std::optional<Tensor>& sin) const {
    return rounded_(TensorOps::rotated_keys(x, cos, sin));
  }

  Tensor scale(const Tensor& scores, const std::optional<Tensor>& head_scale) const {
    return rounded_(TensorOps::scale(scores, head_scale));
  }
  std::pair<Tensor, VisibleKeys> mask(const Tensor& scaled, const Biases<Tensor>& biases) const {
    const auto [masked, visible] = TensorOps::mask(scaled, biases);
    return {rounded_(masked), visible};
  }
  std::pair<Tensor, Tensor> normalise(const Tensor& masked, const VisibleKeys& visible,
                                      const std::optional<Tensor>& sinks) const {
    const auto [weights, logsumexp] = TensorOps::normalise(masked, visible, sinks);
    return {rounded_(weights), logsumexp};
  }
  Tensor weighted_values(const Tensor& weights, const Tensor& values,
                         const VisibleKeys& visible) const {
    return rounded_(TensorOps::weighted_values(weights, values, visible));
  }

 protected:
  const ToStored rounded_;
};

/// The same for results without derivatives; keys are multiplied by `key_scale`.
class RoundedResults : public RoundedOps {
 public:
  RoundedResults(const Inputs& inputs, ToStored rounded, double key_scale)
      : RoundedOps(inputs, rounded), key_scale_(key_scale) {}

  Tensor score(const Tensor& queries, const Tensor& keys,
               const ScoreWeights<Tensor>& weights) const {
    if (key_scale_ == 1) return RoundedOps::score(queries, keys, weights);
    return RoundedOps::score(cast(queries, DType::f32), rounded_(times<float>(keys, key_scale_)),
                             weights);
  }

 private:
  const double key_scale_;
};

/// The same with derivatives, which are rounded, too.
class RoundedGradients : public BasicGradOps<RoundedOps> {
 public:
  RoundedGradients(const Inputs& inputs, ToStored rounded, double key_scale, const Request& wanted)
      : BasicGradOps(inputs, RoundedOps(inputs, rounded), inputs_of(wanted),
                     wanted == Request{Output::delta}, rounded),
        rounded_(rounded),
        key_scale_(key_scale) {}

  Traced evaluated(Output, const Traced& x) const { return {rounded_(x.value), x.node}; }

  Traced score(const Traced& queries, const Traced& keys, const ScoreWeights<Traced>& weights) {
    const Traced of_heads = for_query_heads(keys);
    if (key_scale_ == 1) return BasicGradOps::score(queries, of_heads, weights);
    const auto scaled = [this](const Tensor& x) { return times<double>(x, key_scale_); };
    return BasicGradOps::score(queries, unary(of_heads, rounded_(scaled(of_heads.value)), scaled),
                               weights);
  }

  Traced weighted_values(const Traced& weights, const Traced& values, const VisibleKeys& visible) {
    return BasicGradOps::weighted_values(weights, for_query_heads(values), visible);
  }

 private:
  static std::set<Input> inputs_of(const Request& wanted) {
    const Gradient* const gradient = std::get_if<Gradient>(&wanted);
    return gradient ? std::set{gradient->of} : std::set<Input>();
  }

  /// A key/value head for each query head, whose derivatives are rounded before they are added.
  Traced for_query_heads(const Traced& x) {
    const std::size_t G = x.value.shape()[1];
    if (G == in_.H) return x;
    std::vector<std::size_t> heads;
    for (std::size_t h = 0; h < in_.H; ++h) heads.push_back(h / (in_.H / G));
    return unary(x, take_along(x.value, 1, heads),
                 [G](const Tensor& g) { return sum_of_groups(g, G); });
  }

  const ToStored rounded_;
  const double key_scale_;
};

}  // namespace

Tensor low_precision(const Request& request, const Inputs& in, DType stored) {
  const bool scales_keys = in.options.score == Score::dot && request != Request{Output::scores};
  const double key_scale = scales_keys ? in.scale.factor() : 1;
  Inputs scaled = in;  // shares the tensors
  if (scales_keys) scaled.scale = {};
  scaled.options.empty_rows =
      is_of_gradients(request) ? as_constants(in.options.empty_rows) : in.options.empty_rows;
  const ToStored rounded{stored, in.compute};
  if (is_of_gradients(request)) {
    RoundedGradients ops(scaled, rounded, key_scale, request);
    Formula<RoundedGradients> formula(ops, scaled);
    seed_loss(formula, ops, scaled);
    ops.run();
    return rounded(gradient_of(request, ops, scaled));
  }
  const Output output = std::get<Output>(request);
  const RoundedResults ops(scaled, rounded, key_scale);
  Formula<const RoundedResults> formula(ops, scaled);
  return to_user_layout(output, formula.at(same_numbers_as(output)), scaled);
}

}  // namespace attn
