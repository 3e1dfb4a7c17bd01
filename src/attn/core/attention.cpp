#include "attn/core/attention.h"

#include <optional>

#include "attn/core/formula.h"
#include "attn/core/fused.h"
#include "attn/core/projection.h"
#include "attn/core/tensor_ops.h"

namespace attn {
namespace {

/// Evaluates the formula on tensors, with the fused kernels for everything from scores to
/// head_context if they support the problem.
class Computation {
 public:
  /// All must outlive this object.
  Computation(const Inputs& inputs, const Options& options, const OutputSet& outputs,
              const RowSinks& sinks)
      : in_(inputs),
        options_(options),
        outputs_(outputs),
        sinks_(sinks),
        ops_(inputs, options),
        formula_(ops_, inputs, options) {}

  /// An output with all axes; head_context for context.
  const Tensor& at(Output output) {
    if (needs_scores(output) && is_fused()) compute_fused();
    return formula_.at(same_numbers_as(output));
  }

  /// Whether this output was streamed to its sink.
  bool stream(Output output) {
    if (sink_of(output) == nullptr || !is_fused()) return false;
    compute_fused();
    return true;
  }

 private:
  const RowSink* sink_of(Output output) const {
    if (!outputs_.contains(output) || !is_streamed(output, outputs_)) return nullptr;
    const auto sink = sinks_.find(std::string(name_of(output)));
    return sink == sinks_.end() ? nullptr : &sink->second;
  }

  bool wants_context() const {
    return outputs_.contains(Output::head_context) || outputs_.contains(Output::context) ||
           outputs_.contains(Output::output);
  }

  /// Integers use the reference path, where they are exact up to the scale.
  bool is_fused() {
    if (!is_fused_)
      is_fused_ = outputs_.needs_scores() && fallback_reason(in_, options_) == nullptr &&
                  formula_.at(Output::queries).dtype() == in_.compute &&
                  formula_.at(Output::present_K).dtype() == in_.compute &&
                  (!wants_context() || formula_.at(Output::present_V).dtype() == in_.compute);
    return *is_fused_;
  }

  FusedRequest fused_request() const {
    FusedRequest request;
    for (const OutputRow& row : kOutputs) {
      if (!outputs_.contains(row.output) || !needs_scores(row.output)) continue;
      if (const RowSink* sink = sink_of(row.output))
        request.sinks[index_of(row.output)] = sink;
      else
        request.kept.insert(row.output);
    }
    if (outputs_.contains(Output::mean_weights) || outputs_.contains(Output::key_weights))
      request.kept.insert(Output::weights);
    if (wants_context()) request.kept.insert(Output::head_context);
    return request;
  }

  void compute_fused() {
    if (is_computed_) return;
    FusedOutputs fused = attend_fused(formula_.at(Output::queries), formula_.all_keys(),
                                      wants_context() ? formula_.all_values() : Tensor(), in_,
                                      options_, fused_request());
    for (const OutputRow& row : kOutputs)
      if (std::optional<Tensor>& output = fused[index_of(row.output)])
        formula_.provide(row.output, std::move(*output));
    is_computed_ = true;
  }

  const Inputs& in_;
  const Options& options_;
  const OutputSet& outputs_;
  const RowSinks& sinks_;
  TensorOps ops_;
  Formula<TensorOps> formula_;
  std::optional<bool> is_fused_;
  bool is_computed_ = false;
};

}  // namespace

TensorMap attend(const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs) {
  const Inputs in = make_inputs(tensors, options);
  check_outputs(outputs, tensors, options);
  return attend(in, tensors, options, outputs);
}

TensorMap attend(const Inputs& in, const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs, const RowSinks& sinks,
                 Overflows* overflows) {
  const std::vector<Request> requests = requests_named(outputs);
  const OutputSet set = outputs_among(requests);
  Rounding rounding(in.result);
  const RowSinks exact = in.result == in.compute ? sinks : rounding.before(sinks);
  Computation computation(in, options, set, exact);
  TensorMap results;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Tensor result;
    if (const Input* input = std::get_if<Input>(&requests[i])) {
      result = at(tensors, *input);
    } else {
      const Output output = std::get<Output>(requests[i]);
      if (row_of(output).phase == Phase::given) {
        result = weight_heads(output, tensors, in);
      } else if (computation.stream(output)) {
        continue;
      } else {
        result = to_user_layout(output, computation.at(output), in, options);
        if (float_dtype_of(output, in) == in.result) result = rounding.rounded(outputs[i], result);
      }
    }
    if (const auto sink = sinks.find(outputs[i]); sink != sinks.end())
      sink->second(rows_of(result));
    else
      results.set(outputs[i], result);
  }
  if (overflows != nullptr) *overflows = rounding.overflows();
  return results;
}

}  // namespace attn
