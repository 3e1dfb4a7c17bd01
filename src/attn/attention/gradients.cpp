#include "attn/attention/gradients.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "attn/attention/fused_gradients.h"
#include "attn/attention/row_block.h"
#include "attn/problem/layout.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/widened.h"

namespace attn {
namespace {

/// The problem in float64. What only kernels read stays in its type.
Inputs in_float64(const Inputs& in) {
  TensorMap tensors;
  for (const auto& [name, tensor] : in.tensors)
    tensors.set(name, is_float(tensor.dtype()) && !tensor.rows() && input_named(name)
                          ? widened(tensor, DType::f64)
                          : tensor);
  Options options = in.options;
  options.compute = Compute::f64;
  options.empty_rows = as_constants(options.empty_rows);
  return make_inputs({tensors, options});
}

std::set<Input> wanted_inputs(const std::vector<Request>& requests) {
  std::set<Input> wanted;
  for (const Request& request : requests)
    if (const Gradient* gradient = std::get_if<Gradient>(&request)) wanted.insert(gradient->of);
  return wanted;
}

bool wants_delta(const std::vector<Request>& requests) {
  return std::find(requests.begin(), requests.end(), Request{Output::delta}) != requests.end();
}

}  // namespace

Gradients::Gradients(const Inputs& in, const std::vector<Request>& requests)
    : in_(in_float64(in)),
      result_(in.result),
      compute_(in.compute),
      ops_(in_, wanted_inputs(requests), wants_delta(requests)) {
  Formula<GradOps> formula(ops_, in_);
  Inputs fast = in;
  fast.options.empty_rows = in_.options.empty_rows;
  fast.key_part = nullptr;
  const bool is_fused =
      gradient_fallback_reason(in, requests) == nullptr && provide_context(formula, fast);
  seed_loss(formula, ops_, in_, is_fused ? std::optional(Input::grad_logsumexp) : std::nullopt);
  ops_.run();
}

bool Gradients::provide_context(Formula<GradOps>& formula, const Inputs& fast) {
  const Traced queries = formula.at(Output::queries), keys = formula.all_keys(),
               values = formula.all_values();
  const std::optional<Attended> attended =
      attend_for_gradients(queries.value, keys.value, values.value, fast, in_);
  if (!attended) return false;
  std::optional<Tensor> of_logsumexp;
  if (const auto& seed = in_[Input::grad_logsumexp])
    of_logsumexp = TensorOps(in_).in_lse_base(cast(*seed, DType::f64));
  const Traced context = ops_.attended(queries, keys, values, *attended, formula.biases(),
                                       formula.given(Input::sinks), of_logsumexp);
  if (of_logsumexp) ops_.seed(context, Tensor(DType::f64, context.value.shape()));
  formula.provide(Output::head_context, formula.finished(context));
  return true;
}

Tensor Gradients::of(const Request& request) const {
  return cast(gradient_of(request, ops_, in_),
              std::holds_alternative<Gradient>(request) ? result_ : compute_);
}

OutputSet outputs_of_loss(const Inputs& in) {
  OutputSet outputs;
  for (const auto& [seed, output] : kSeeds)
    if (in[seed]) outputs.insert(same_numbers_as(output));
  return outputs;
}

std::size_t bytes_of_gradients(std::size_t bytes_of_outputs, std::size_t largest,
                               const Inputs& in) {
  std::size_t bytes =
      saturating_sum(saturating_product({2, bytes_of_outputs}), saturating_product({4, largest}));
  for (const auto& [name, tensor] : in.tensors)  // in float64, and their derivatives
    bytes = saturating_sum(bytes, saturating_product({4, tensor.size(), sizeof(double)}));
  return bytes;
}

}  // namespace attn
