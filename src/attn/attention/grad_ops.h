// The operations of the formula on tensors, with derivatives (attention/traced_ops.h).
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "attn/attention/derivatives.h"
#include "attn/attention/fused_gradients.h"
#include "attn/attention/gemm.h"
#include "attn/attention/rotary.h"
#include "attn/attention/traced_ops.h"
#include "attn/base/error.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/transposed.h"
#include "attn/tensor/widened.h"

namespace attn {

/// A float64 tensor of the formula.
using Traced = TracedValue<Tensor>;

/// Arithmetic of TracedOps.
struct TensorDerivatives {
  Shape shape(const Tensor& x) const { return x.shape(); }
  Tensor reshaped(const Tensor& x, const Shape& shape) const { return x.reshaped(shape); }
  Tensor wide(const Tensor& x) const { return cast(x, DType::f64); }
  template <class Linear>
  Tensor moved(const Tensor& g, const Linear& linear) const {
    return linear(g);
  }
  Tensor stored(Tensor x) const { return x; }
  Tensor times(Tensor a, const Tensor& b) const { return chained(std::move(a), b); }
  Tensor sums(const Tensor& x, const Shape& shape) const { return sum_to(x, shape); }
  Tensor of_weights(const Tensor& x, const Tensor& g) const {
    return transposed_matrices(transposed_product(g, x));
  }
  Tensor of_rows(const Tensor& g, const Tensor& W) const {
    return chained_product(g, transposed_matrices(W));
  }
  /// At the limit itself the derivative is 1, as in PyTorch.
  Tensor unclipped(Tensor g, const Tensor& x, double limit) const {
    std::size_t i = 0;
    for (double& value : g.mutable_data<double>())
      if (std::abs(x.data<double>()[i++]) > limit) value = 0;
    return g;
  }
  Tensor sigmoid_slope(Tensor y) const {
    for (double& value : y.mutable_data<double>()) value *= 1 - value;
    return y;
  }
  NormDerivatives normalised(const Tensor& g, const Tensor& x, const std::optional<Tensor>& weight,
                             const std::optional<Tensor>& bias, const Options& options) const {
    return norm_derivatives(g, x, weight, bias, options);
  }
};

/// Derived classes replace operations, for Formula of them. Exact: TensorOps, or a class derived
/// from it.
template <class Exact>
class BasicGradOps : public TracedOps<Exact, TensorDerivatives> {
  using Base = TracedOps<Exact, TensorDerivatives>;

 protected:
  using Base::arithmetic_, Base::delta_, Base::exact_, Base::in_, Base::tape_, Base::wants_delta_;
  using Base::found_derivative, Base::record, Base::value_of;

 public:
  using typename Base::Operand;

  /// `inputs`, whose floats are float64, must outlive this object. Derivatives by `wanted` are
  /// computed, and delta() on request. `rounding` is applied to the derivatives by each operand.
  BasicGradOps(const Inputs& inputs, Exact exact, std::set<Input> wanted, bool wants_delta,
               std::function<Tensor(const Tensor&)> rounding = nullptr)
      : Base(inputs, std::move(exact), {}, std::move(wanted), wants_delta, std::move(rounding)) {}

  /// Sets the derivative of the loss by a value, or adds to it.
  void seed(const Traced& value, const Tensor& g) {
    tape_.pass(value, [&] { return g; });
  }
  /// The derivative by an input; nullopt if the loss does not depend on it.
  std::optional<Tensor> derivative(Input input) const { return found_derivative(input); }

  Traced positions() const { return {exact_.positions()}; }

  Traced rotated_queries(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, in_.query_positions, true,
                   exact_.rotated_queries(x.value, value_of(cos), value_of(sin)));
  }
  Traced rotated_keys(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, cos, sin, in_.key_positions, false,
                   exact_.rotated_keys(x.value, value_of(cos), value_of(sin)));
  }

  Traced score(const Traced& queries, const Traced& keys, const ScoreWeights<Traced>& w) {
    const ScoreWeights<Tensor> weights{value_of(w.W), value_of(w.W_Q), value_of(w.W_K),
                                       value_of(w.b), value_of(w.v),   value_of(w.g)};
    return record(exact_.score(queries.value, keys.value, weights),
                  {queries, keys, w.W, w.W_Q, w.W_K, w.b, w.v, w.g}, [=, this](const Tensor& g) {
                    ScoreDerivatives of =
                        score_derivatives(g, queries.value, keys.value, weights, in_.options.score);
                    tape_.pass(queries, [&] { return of.queries; });
                    tape_.pass(keys, [&] { return of.keys; });
                    const std::pair<const Operand*, std::optional<Tensor>*> given[] = {
                        {&w.W, &of.weights.W}, {&w.W_Q, &of.weights.W_Q}, {&w.W_K, &of.weights.W_K},
                        {&w.b, &of.weights.b}, {&w.v, &of.weights.v},     {&w.g, &of.weights.g}};
                    for (const auto& pair : given)
                      if (*pair.first) tape_.pass(**pair.first, [&] { return **pair.second; });
                  });
  }

  Traced scale(const Traced& scores, const Operand& head_scale) {
    const Tensor scaled = exact_.scale(scores.value, value_of(head_scale));
    const bool is_capped = in_.options.softcap_order == SoftcapOrder::before_mask;
    return record(scaled, {scores, head_scale}, [=, this](const Tensor& of_scaled) {
      const Tensor g = is_capped ? before_softcap(of_scaled, scaled) : of_scaled;
      const auto times_scale = [&](Tensor x) {
        for (double& value : x.mutable_data<double>()) value *= in_.scale.factor();
        return x;
      };
      if (head_scale)
        tape_.pass(*head_scale, [&] {
          return sum_to(times_scale(chained(g, scores.value)), {1, in_.H, 1, 1}).reshaped({in_.H});
        });
      tape_.pass(scores,
                 [&] { return times_scale(head_scale ? times_by_head(g, head_scale->value) : g); });
    });
  }

  std::pair<Traced, VisibleKeys> mask(const Traced& scaled, const Biases<Traced>& biases) {
    Biases<Tensor> values;
    std::vector<Operand> operands = {scaled};
    for (const auto& [input, bias] : biases) {
      values.push_back({input, bias.value});
      operands.emplace_back(bias);
    }
    const auto [masked, visible] = exact_.mask(scaled.value, values);
    const bool is_capped = in_.options.softcap_order == SoftcapOrder::after_mask;
    // Hidden scores have the derivative 0, because normalise() gives them none.
    return {record(masked, operands,
                   [=, this, masked = masked](const Tensor& of_masked) {
                     const Tensor g = is_capped ? before_softcap(of_masked, masked) : of_masked;
                     tape_.pass(scaled, [&] { return g; });
                     for (std::size_t i = 0; i < values.size(); ++i)
                       tape_.pass(*operands[i + 1],
                                  [&] { return bias_derivative(g, values[i], in_); });
                   }),
            visible};
  }

  std::pair<Traced, Traced> normalise(const Traced& masked, const VisibleKeys& visible,
                                      const Operand& sinks) {
    auto [weights, logsumexp] = exact_.normalise(masked.value, visible, value_of(sinks));
    const Normalised n{masked.value, weights, logsumexp, visible, value_of(sinks)};
    const auto backward = [&](auto derivatives_of) {
      return [=, this](const Tensor& g) {
        const NormaliserDerivatives of = derivatives_of(g, n, in_.options);
        tape_.pass(masked, [&] { return of.masked; });
        if (sinks) tape_.pass(*sinks, [&] { return of.sinks; });
      };
    };
    return {record(weights, {masked, sinks}, backward(weights_derivatives)),
            record(logsumexp, {masked, sinks}, backward(logsumexp_derivatives))};
  }

  Traced reported_logsumexp(const Traced& natural) {
    return unary(natural, exact_.reported_logsumexp(natural.value),
                 [this](const Tensor& g) { return exact_.in_lse_base(g); });
  }

  Traced dropped(const Traced& weights) {
    return unary(weights, exact_.dropped(weights.value),
                 [this](const Tensor& g) { return exact_.dropped(g); });
  }

  // No loss depends on these.
  [[noreturn]] Traced mean_over_heads(const Traced&) const { throw_undefined(); }
  [[noreturn]] Traced sum_over_queries(const Traced&) const { throw_undefined(); }
  [[noreturn]] Traced row_statistic(Output, const Traced&) const { throw_undefined(); }

  /// The context of attend_for_gradients(), and its derivatives; `of_logsumexp` is the derivative
  /// of the loss by the natural logsumexp, if it depends on it.
  Traced attended(const Traced& queries, const Traced& keys, const Traced& values,
                  const Attended& of, const Biases<Traced>& biases, const Operand& sinks,
                  const std::optional<Tensor>& of_logsumexp) {
    std::vector<Operand> operands = {queries, keys, values, sinks};
    std::array<Operand, kKernelBiases.size()> by_input;
    for (const auto& [input, bias] : biases) {
      const auto at = std::find(kKernelBiases.begin(), kKernelBiases.end(), input);
      if (at == kKernelBiases.end()) continue;
      operands.emplace_back(bias);
      by_input[static_cast<std::size_t>(at - kKernelBiases.begin())] = bias;
    }
    if (wants_delta_) operands.push_back(Traced{{}, tape_.add(nullptr)});
    return record(widened(of.context, DType::f64), operands, [=, this](const Tensor& g) {
      AttendedRequest request;
      for (std::size_t i = 0; i < by_input.size(); ++i)
        request.biases[i] = by_input[i] && by_input[i]->node;
      const AttendedDerivatives derivatives = attended_derivatives(of, g, of_logsumexp, request);
      if (wants_delta_) delta_ = derivatives.delta;
      tape_.pass(queries, [&] { return derivatives.queries; });
      tape_.pass(keys, [&] { return derivatives.keys; });
      tape_.pass(values, [&] { return derivatives.values; });
      if (sinks) tape_.pass(*sinks, [&] { return *derivatives.sinks; });
      for (std::size_t i = 0; i < by_input.size(); ++i)
        if (request.biases[i]) tape_.pass(*by_input[i], [&] { return *derivatives.biases[i]; });
    });
  }

  Traced weighted_values(const Traced& weights, const Traced& values, const VisibleKeys& visible) {
    const Tensor context = exact_.weighted_values(weights.value, values.value, visible);
    Operand of_delta;  // an operand that is always wanted
    if (wants_delta_) of_delta = {{}, tape_.add(nullptr)};
    return record(context, {weights, values, of_delta}, [=, this](const Tensor& g) {
      if (wants_delta_) delta_ = delta_of(context, g);
      tape_.pass(values, [&] {
        return sum_of_groups(transposed_product(weights.value, g), values.value.shape()[1]);
      });
      tape_.pass(weights, [&] {
        Tensor of_weights = matmul(g, values.value, Second::transposed, "gradients");
        const auto seen = visible.keys.data<bool>();
        std::size_t i = 0;
        for (double& value : of_weights.mutable_data<double>())
          if (!seen[i++]) value = 0;
        return of_weights;
      });
    });
  }

 protected:
  /// An operation with one operand. Backward: Tensor -> Tensor.
  template <class Backward>
  Traced unary(const Traced& x, const Tensor& value, Backward backward) {
    return record(value, {x}, [this, node = x.node, backward](const Tensor& g) {
      tape_.pass(Traced{{}, node}, [&] { return backward(g); });
    });
  }

 private:
  [[noreturn]] static void throw_undefined() {
    throw Error(ErrorKind::internal, "no derivative is known for this operation");
  }

  Traced rotated(const Traced& x, const Operand& cos, const Operand& sin, const Tensor& positions,
                 bool are_queries, const Tensor& value) {
    const Rotary::Kind kind = in_.options.rotary.kind;
    if (kind == Rotary::Kind::none) return x;
    const Angles all = rotary_angles(in_, positions, value_of(cos), value_of(sin));
    const Angles angles =
        are_queries ? Angles{exact_.chosen_rows(all.cos), exact_.chosen_rows(all.sin)} : all;
    return record(value, {x, cos, sin}, [=, this](const Tensor& g) {
      tape_.pass(x, [&] {
        Angles back = angles;
        for (double& sine : back.sin.mutable_data<double>()) sine = -sine;
        return attn::rotated(g, back, kind, DType::f64);
      });
      if (!cos || (!cos->node && !sin->node)) return;
      const Angles of = angle_derivatives(g, x.value, angles, kind);
      const auto of_table = [&](const Traced& table, const Tensor& of_angles) {
        return table_derivative(
            are_queries ? scattered_rows(of_angles, in_.rows, in_.L) : of_angles, positions,
            table.value.shape());
      };
      tape_.pass(*cos, [&] { return of_table(*cos, of.cos); });
      tape_.pass(*sin, [&] { return of_table(*sin, of.sin); });
    });
  }

  /// The derivative by x of c tanh(x / c), whose value is y.
  Tensor before_softcap(Tensor g, const Tensor& y) const {
    const double c = in_.options.softcap;
    if (c == 0) return g;
    std::size_t i = 0;
    const auto capped = y.data<double>();
    for (double& value : g.mutable_data<double>()) {
      const double t = capped[i++] / c;
      value = chained(value, (1 - t) * (1 + t));
    }
    return g;
  }
};

/// The operations on float64 tensors.
class GradOps : public BasicGradOps<TensorOps> {
 public:
  GradOps(const Inputs& inputs, std::set<Input> wanted, bool wants_delta)
      : BasicGradOps(inputs, TensorOps(inputs), std::move(wanted), wants_delta) {}
};

}  // namespace attn
