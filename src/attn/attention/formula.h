// The formula of attention: how each output follows from the inputs and from other outputs.
//
//   scores  = Q K^T                                   (or another score function)
//   weights = softmax(scale * scores + bias, over the visible keys)
//   context = weights V                               (weights after dropout, if there is any)
//
// An interpreter gives the operations their meaning. There are five:
//   TensorOps     the numbers themselves                 (attention/tensor_ops.h)
//   GradOps       the numbers, and derivatives by inputs (attention/grad_ops.h)
//   CostOps       shapes, dtypes and flops               (attention/plan.cpp)
//   ErrorOps      values with error bounds               (bounds/error_ops.h)
//   GradErrorOps  the same, and bounds of derivatives    (bounds/gradient_error.cpp)
// Those with derivatives are both TracedOps (attention/traced_ops.h).
// An output without a case below, or an operation that an interpreter lacks, does not compile.
#pragma once

#include <optional>
#include <utility>

#include "attn/attention/score.h"
#include "attn/base/error.h"
#include "attn/base/slots.h"
#include "attn/problem/inputs.h"
#include "attn/problem/mask.h"
#include "attn/problem/options.h"
#include "attn/problem/output_table.h"

namespace attn {

/// Evaluates the formula with the operations of `Ops`. Ops::Value represents a tensor, Ops::Visible
/// the visible keys of each query. Tensors of numbers reach an operation as operands that
/// Ops::given() made from an input. Everything else that an operation depends on (options, flags,
/// positions) it takes from Inputs.
template <class Ops>
class Formula {
 public:
  using Value = typename Ops::Value;

  /// Both must outlive the formula.
  Formula(Ops& ops, const Inputs& inputs) : ops_(ops), in_(inputs) {}

  /// The value of an output. First evaluates the outputs that it depends on, each only once.
  const Value& at(Output output) {
    std::optional<Value>& value = values_[output];
    if (!value) value = ops_.evaluated(output, evaluate(output));
    return *value;
  }

  /// Sets the value of an output that was computed by other means; logsumexp in base e, with -inf
  /// for queries that see no key.
  void provide(Output output, Value value) {
    if (output == Output::logsumexp)
      natural_logsumexp_ = std::move(value);
    else
      values_[output] = std::move(value);
  }

  /// Keys or values (B, G, P + N, D), then the appended ones that every query sees: (B, G, S, D).
  Value with_appended(const Value& x, Input bias) {
    Value all = in_[bias] ? ops_.append(x, ops_.given(bias)) : x;
    return in_.options.zero_key ? ops_.append_zero(all) : all;
  }
  Value all_keys() { return with_appended(at(Output::present_K), Input::bias_K); }
  Value all_values() { return with_appended(at(Output::present_V), Input::bias_V); }

  /// An operand that the problem may lack.
  std::optional<Value> given(Input input) {
    return in_[input] ? std::optional<Value>(ops_.given(input)) : std::nullopt;
  }

  /// The tensors that are added to scores.
  Biases<Value> biases() {
    Biases<Value> biases;
    for (const Input input : kBiasInputs)
      if (in_[input] && is_added(input, *in_[input])) biases.push_back({input, ops_.given(input)});
    return biases;
  }

  /// Weighted values (B, H, rows, Dv) times the output gates, if there are any, over o_scale.
  Value finished(const Value& context) {
    const bool has_gates = in_[Input::gate] || in_[Input::W_gate];
    const Value gated = has_gates ? ops_.gated(context, at(Output::gates)) : context;
    return in_.options.o_scale == 1 ? gated : ops_.divided(gated, in_.options.o_scale);
  }

 private:
  Value evaluate(Output output) {
    switch (output) {
      case Output::positions:  // (rows, M)
        return ops_.positions();
      case Output::inputs:  // (B, rows, M)
        return ops_.chosen_rows(all_inputs());
      case Output::W_Q_heads:
      case Output::W_K_heads:
      case Output::W_V_heads:
        break;                 // not computed: weight_heads() in attention/projection.h
      case Output::queries: {  // (B, H, rows, D)
        Value q = ops_.clipped(
            in_.projected ? ops_.split_heads(ops_.project(at(Output::inputs), given(Input::W_Q),
                                                          given(Input::b_Q), Output::queries),
                                             in_.H)
                          : ops_.chosen_rows(ops_.given(Input::Q)));
        return ops_.scaled_by_position(ops_.rotated_queries(
            ops_.qk_normalised(std::move(q), given(Input::q_norm), given(Input::q_norm_bias)),
            given(Input::cos), given(Input::sin)));
      }
      case Output::keys: {  // (B, G, N, Dk)
        Value k = ops_.clipped(in_.projected
                                   ? ops_.split_heads(ops_.project(memory(), given(Input::W_K),
                                                                   given(Input::b_K), Output::keys),
                                                      in_.G)
                                   : ops_.given(Input::K));
        return ops_.rotated_keys(
            ops_.qk_normalised(std::move(k), given(Input::k_norm), given(Input::k_norm_bias)),
            given(Input::cos), given(Input::sin));
      }
      case Output::values:  // (B, G, N, Dv)
        if (!in_.projected) return ops_.clipped(ops_.given(in_[Input::V] ? Input::V : Input::K));
        return ops_.clipped(ops_.split_heads(
            ops_.project(in_[Input::memory_V] ? ops_.given(Input::memory_V) : memory(),
                         given(Input::W_V), given(Input::b_V), Output::values),
            in_.G));
      case Output::present_K:  // (B, G, P + N, Dk)
        return in_[Input::past_K] ? ops_.append(ops_.given(Input::past_K), at(Output::keys))
                                  : at(Output::keys);
      case Output::present_V:  // (B, G, P + N, Dv)
        return in_[Input::past_V] ? ops_.append(ops_.given(Input::past_V), at(Output::values))
                                  : at(Output::values);
      case Output::gates:  // (B, H, rows, Dv)
        return ops_.sigmoid(
            in_[Input::gate]
                ? ops_.chosen_rows(ops_.given(Input::gate))
                : ops_.split_heads(ops_.project(at(Output::inputs), given(Input::W_gate),
                                                given(Input::b_gate), Output::gates),
                                   in_.H));
      case Output::scores:  // (B, H, rows, S), as are all up to weights
        return ops_.score(at(Output::queries), all_keys(), score_weights());
      case Output::scaled_scores:
        return ops_.scale(at(Output::scores), given(Input::head_scale));
      case Output::masked_scores: {
        auto [scores, visible] = ops_.mask(at(Output::scaled_scores), biases());
        visible_ = std::move(visible);
        return scores;
      }
      case Output::weights: {
        const Value& scores = at(Output::masked_scores);
        auto [weights, logsumexp] = ops_.normalise(scores, *visible_, given(Input::sinks));
        if (!leaves_sinks_out(in_)) natural_logsumexp_ = std::move(logsumexp);
        return weights;
      }
      case Output::dropped_weights:
        return ops_.dropped(at(Output::weights));
      case Output::mean_weights:  // (B, rows, S)
        return ops_.mean_over_heads(at(Output::weights));
      case Output::key_weights:  // (B, H, S)
        return ops_.sum_over_queries(at(Output::weights));
      case Output::logsumexp:  // (B, H, rows)
        if (!natural_logsumexp_ && leaves_sinks_out(in_)) {
          const Value& scores = at(Output::masked_scores);
          natural_logsumexp_ = ops_.normalise(scores, *visible_, std::nullopt).second;
        }
        if (!natural_logsumexp_) at(Output::weights);
        return ops_.reported_logsumexp(*natural_logsumexp_);
      case Output::row_max:  // (B, H, rows), as are these
      case Output::weight_sum:
      case Output::entropy:
      case Output::effective_keys:
      case Output::keys_95:
      case Output::distance:
      case Output::first_key_weight:
      case Output::previous_token_weight:
      case Output::duplicate_token_weight:
      case Output::induction_weight:
        return ops_.row_statistic(output, at(*row_of(output).reduces));
      case Output::head_context: {  // (B, H, rows, Dv)
        const Value& weights =
            at(in_[Input::dropout_mask] ? Output::dropped_weights : Output::weights);
        return finished(ops_.weighted_values(weights, all_values(), *visible_));
      }
      case Output::context:  // (B, rows, H * Dv)
        return ops_.join_heads(at(Output::head_context));
      case Output::output:  // (B, rows, Mo)
        return ops_.project(in_[Input::W_UV] ? expanded_context() : at(Output::context),
                            given(Input::W_O), given(Input::b_O), Output::output);
      case Output::delta:
        break;  // attention/gradients.h
    }
    throw Error(ErrorKind::internal, "an output that is not computed");
  }

  /// (B, L, M): keys and values come from all tokens, even if only some rows are computed.
  const Value& all_inputs() {
    if (!all_inputs_)
      all_inputs_ =
          ops_.input_normalised(ops_.add_positions(ops_.given(Input::embeddings)),
                                given(Input::input_norm_weight), given(Input::input_norm_bias));
    return *all_inputs_;
  }

  /// The contexts of latent attention times W_UV, (B, rows, H * Du).
  Value expanded_context() {
    const Value context = ops_.swap_batch_and_heads(at(Output::head_context));
    return ops_.join_heads(ops_.swap_batch_and_heads(
        ops_.project(context, given(Input::W_UV), std::nullopt, Output::output)));
  }

  Value memory() { return in_[Input::memory] ? ops_.given(Input::memory) : all_inputs(); }

  ScoreWeights<Value> score_weights() {
    return {given(Input::W_score), given(Input::W_score_Q), given(Input::W_score_K),
            given(Input::b_score), given(Input::v_score),   given(Input::g_score)};
  }

  Ops& ops_;
  const Inputs& in_;
  Slots<Output, kOutputs.size(), Value> values_;
  std::optional<Value> all_inputs_, natural_logsumexp_;
  std::optional<typename Ops::Visible> visible_;
};

}  // namespace attn
