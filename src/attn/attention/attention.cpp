#include "attn/attention/attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <vector>

#include "attn/attention/formula.h"
#include "attn/attention/fused.h"
#include "attn/attention/gradients.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/projection.h"
#include "attn/attention/tensor_ops.h"
#include "attn/problem/layout.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

/// Evaluates the formula on tensors, with the fused kernels for everything from scores to
/// head_context if they support the problem.
class Computation {
 public:
  /// The arguments must outlive this object.
  Computation(const Inputs& inputs, const OutputSet& outputs, const RowConsumers& consumers)
      : in_(inputs),
        outputs_(outputs),
        consumers_(consumers),
        ops_(inputs),
        formula_(ops_, inputs) {}

  /// An output with all axes; head_context for context.
  const Tensor& at(Output output) {
    if (needs_scores(output)) {
      if (is_fused())
        compute_fused();
      else if (reference_rows_at_a_time(in_, outputs_) < in_.rows.size())
        compute_in_parts();
    }
    return formula_.at(same_numbers_as(output));
  }

  /// Whether this output was streamed to its consumer.
  bool stream(Output output) {
    if (consumer_of(output) == nullptr || !is_fused()) return false;
    compute_fused();
    return true;
  }

 private:
  const RowConsumer* consumer_of(Output output) const {
    if (!outputs_.contains(output) || !is_streamed(output, outputs_)) return nullptr;
    const auto consumer = consumers_.find(output);
    return consumer == consumers_.end() ? nullptr : &consumer->second;
  }

  bool wants_context() const {
    return outputs_.contains(Output::head_context) || outputs_.contains(Output::context) ||
           outputs_.contains(Output::output);
  }

  /// Integers use the reference path, where they are exact up to the scale.
  bool is_fused() {
    if (!is_fused_)
      is_fused_ = outputs_.needs_scores() && formula_.at(Output::queries).dtype() == in_.compute &&
                  formula_.at(Output::present_K).dtype() == in_.compute &&
                  (!wants_context() || formula_.at(Output::present_V).dtype() == in_.compute) &&
                  fallback_reason(in_) == nullptr;
    return *is_fused_;
  }

  FusedRequest fused_request() const {
    FusedRequest request;
    for (const OutputRow& row : kOutputs) {
      if (!outputs_.contains(row.output) || !needs_scores(row.output)) continue;
      if (const RowConsumer* consumer = consumer_of(row.output))
        request.consumers[index_of(row.output)] = consumer;
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
    FusedRequest request = fused_request();
    const bool is_apart = leaves_sinks_out(in_) && request.kept.contains(Output::logsumexp);
    if (is_apart) request.kept.erase(Output::logsumexp);
    const auto is_wanted = [&](const OutputRow& row) { return request.wants(row.output); };
    if (std::any_of(kOutputs.begin(), kOutputs.end(), is_wanted)) provide_fused(in_, request);
    if (is_apart) {
      Inputs without = in_;
      without[Input::sinks].reset();
      FusedRequest logsumexp;
      logsumexp.kept.insert(Output::logsumexp);
      provide_fused(without, logsumexp);
    }
    is_computed_ = true;
  }

  void provide_fused(const Inputs& in, const FusedRequest& request) {
    const Tensor values = request.wants(Output::head_context) ? formula_.all_values() : Tensor();
    auto [fused, overflowed, remainder] =
        attend_fused(formula_.at(Output::queries), formula_.all_keys(), values, in, request);
    if (std::optional<Tensor>& context = fused[index_of(Output::head_context)])
      context = formula_.finished(*context);
    compute_rows(in, overflowed, request, fused);
    for (const OutputRow& row : kOutputs)
      if (std::optional<Tensor>& output = fused[index_of(row.output)])
        formula_.provide(row.output, std::move(*output));
  }

  /// Computes everything from scores to head_context some queries at a time.
  void compute_in_parts() {
    if (is_computed_) return;
    OutputSet wanted;
    for (const OutputRow& row : kOutputs)
      if (needs_scores(row.output) && outputs_.contains(row.output) && row.output != Output::output)
        wanted.insert(same_numbers_as(row.output));
    if (wants_context()) wanted.insert(Output::head_context);
    std::array<Tensor, kOutputs.size()> whole;
    const std::size_t rows = in_.rows.size(), step = reference_rows_at_a_time(in_, outputs_);
    for (std::size_t first = 0; first < rows; first += step) {
      std::vector<std::size_t> queries(std::min(step, rows - first));
      std::iota(queries.begin(), queries.end(), first);
      Inputs part = part_of(in_, {{first, queries.size()}});
      part.options.lse_base = std::numbers::e;  // as provide() takes it
      part.options.lse_empty = EmptyLogsumexp::minus_infinity;
      TensorOps ops(part);
      Formula<TensorOps> formula(ops, part);
      provide_factors(queries, formula);
      for (const OutputRow& row : kOutputs)
        if (wanted.contains(row.output))
          put_part(formula.at(row.output), *row.axes.find(Axis::L), first, rows,
                   whole[index_of(row.output)]);
    }
    for (const OutputRow& row : kOutputs)
      if (wanted.contains(row.output))
        formula_.provide(row.output, std::move(whole[index_of(row.output)]));
    is_computed_ = true;
  }

  /// Queries, keys and values of a problem with these queries.
  void provide_factors(const std::vector<std::size_t>& queries, Formula<TensorOps>& part) {
    part.provide(Output::queries, take_rows(formula_.at(Output::queries), queries));
    part.provide(Output::present_K, formula_.at(Output::present_K));
    if (!wants_context()) return;
    part.provide(Output::present_V, formula_.at(Output::present_V));
    if (in_[Input::gate] || in_[Input::W_gate])
      part.provide(Output::gates, take_rows(formula_.at(Output::gates), queries));
  }

  /// Computes rows of (B, H, rows), given as flat indices, with the operations of the formula. One
  /// query at a time, so that the bytes of a row do not depend on which others are computed.
  void compute_rows(const Inputs& in, const std::vector<std::size_t>& rows,
                    const FusedRequest& request, FusedOutputs& fused) {
    std::map<std::size_t, std::vector<std::size_t>> by_query;
    for (const std::size_t row : rows) by_query[row % in_.rows.size()].push_back(row);
    for (const auto& [query, its_rows] : by_query)
      compute_query(in, query, its_rows, request, fused);
  }

  /// Computes a query and copies these of its rows to the outputs or consumers.
  void compute_query(const Inputs& in, std::size_t query, const std::vector<std::size_t>& rows,
                     const FusedRequest& request, FusedOutputs& fused) {
    Inputs part = part_of(in, {{query, 1}});
    report_natural_logsumexp(part.options);  // as that of the kernels
    TensorOps ops(part);
    Formula<TensorOps> formula(ops, part);
    provide_factors({query}, formula);
    for (const OutputRow& output : kOutputs) {
      if (!request.wants(output.output) && output.output != Output::logsumexp) continue;
      if (!fused[index_of(output.output)] && request.consumers[index_of(output.output)] == nullptr)
        continue;
      put_rows(output.output, formula.at(output.output), rows, request, fused);
    }
  }

  /// Copies rows from `computed`, an output for their query, to the output or its consumer.
  void put_rows(Output output, const Tensor& computed, const std::vector<std::size_t>& rows,
                const FusedRequest& request, FusedOutputs& fused) const {
    const std::size_t L = in_.rows.size();
    const std::size_t bytes = computed.bytes() / (in_.B * in_.H);
    for (const std::size_t row : rows) {
      const std::byte* from = computed.raw() + row / L * bytes;
      if (const RowConsumer* consumer = request.consumers[index_of(output)])
        (*consumer)({.first = row,
                     .count = 1,
                     .columns = in_.S,
                     .dtype = computed.dtype(),
                     .data = from,
                     .stride = bytes});
      else if (bytes > 0)
        std::memcpy(fused[index_of(output)]->mutable_raw() + row * bytes, from, bytes);
    }
  }

  const Inputs& in_;
  const OutputSet& outputs_;
  const RowConsumers& consumers_;
  TensorOps ops_;
  Formula<TensorOps> formula_;
  std::optional<bool> is_fused_;
  bool is_computed_ = false;
};

}  // namespace

TensorMap attend(const AttentionArguments& given, const std::vector<Request>& outputs) {
  const Inputs in = make_inputs(given);
  check_outputs(outputs, given);
  return attend(in, outputs);
}

TensorMap attend(const Inputs& in, const std::vector<Request>& outputs,
                 const RowConsumers& consumers, Overflows* overflows) {
  const OutputSet set = outputs_among(outputs);
  Rounding rounding(in.result);
  const RowConsumers exact = in.result == in.compute ? consumers : rounding.before(consumers);
  Computation computation(in, set, exact);
  std::unique_ptr<const Gradients> gradients;  // large, and seldom needed
  TensorMap results;
  for (const Request& request : outputs) {
    const std::string name(name_of(request));
    if (const Input* input = std::get_if<Input>(&request)) {
      results.set(name, at(in.tensors, *input));
      continue;
    }
    if (is_of_gradients(request)) {
      if (!gradients) gradients = std::make_unique<const Gradients>(in, outputs);
      results.set(name, gradients->of(request));
      continue;
    }
    const Output output = std::get<Output>(request);
    if (computation.stream(output)) continue;
    const bool is_given = row_of(output).phase == Phase::given;
    Tensor result =
        is_given ? weight_heads(output, in) : to_user_layout(output, computation.at(output), in);
    if (!is_given && float_dtype_of(output, in) == in.result)
      result = rounding.rounded(output, std::move(result));
    if (const auto consumer = consumers.find(output); consumer != consumers.end())
      consumer->second(rows_of(result));
    else
      results.set(name, std::move(result));
  }
  if (overflows != nullptr) *overflows = rounding.overflows();
  return results;
}

}  // namespace attn
