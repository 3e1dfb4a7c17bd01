// Derivatives of a loss by the inputs of a problem.
//
// The loss is the sum of the elements of the context times those of grad_context, and so on for
// each given seed (InputKind::seed). Computed in float64 with the operations of the formula
// (attention/grad_ops.h), which keep all stages in memory, except that everything from scores to
// head_context is left to kernels if they support the problem (attention/fused_gradients.h). These
// compute in the dtype of the problem and keep no scores. docs/semantics.md has the formulas and
// the rules for queries without keys and for hidden values.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "attn/attention/formula.h"
#include "attn/attention/grad_ops.h"
#include "attn/problem/inputs.h"
#include "attn/problem/layout.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"
#include "attn/tensor/widened.h"

namespace attn {

class Gradients {
 public:
  /// Computes those among `requests` that are of gradients. Errors: data, where the selection of
  /// top_k is not unique.
  Gradients(const Inputs& in, const std::vector<Request>& requests);

  /// In the user's layout and the dtype of the results: a Gradient with the shape of its input, or
  /// delta.
  Tensor of(const Request& request) const;

 private:
  /// Computes head_context with kernels, in the dtype of `fast`. Returns whether they can.
  bool provide_context(Formula<GradOps>& formula, const Inputs& fast);

  const Inputs in_;  ///< in float64
  const DType result_, compute_;
  GradOps ops_;
};

/// Sets the derivatives of the loss by outputs to those that the job gives; `except`: one that is
/// counted elsewhere.
template <class Ops>
void seed_loss(Formula<Ops>& formula, Ops& ops, const Inputs& in,
               std::optional<Input> except = {}) {
  for (const auto& [seed, output] : kSeeds)
    if (in[seed] && seed != except)
      ops.seed(formula.at(same_numbers_as(output)), widened(*in[seed], DType::f64));
}

/// The derivative that ops.run() computed, or delta, in the user's layout and float64.
template <class Ops>
Tensor gradient_of(const Request& request, const Ops& ops, const Inputs& in) {
  if (const Gradient* gradient = std::get_if<Gradient>(&request)) {
    const std::optional<Tensor> full = ops.derivative(gradient->of);
    return full ? to_user_layout(gradient->of, *full, in)
                : Tensor(DType::f64, gradient_shape(gradient->of, in));
  }
  const std::optional<Tensor>& delta = ops.delta();
  return to_user_layout(Output::delta,
                        delta ? *delta : Tensor(DType::f64, full_shape(Output::delta, in)), in);
}

/// An upper bound of the memory of Gradients, where the outputs that the loss depends on take
/// `bytes_of_outputs` in float64, and the largest of them `largest`.
std::size_t bytes_of_gradients(std::size_t bytes_of_outputs, std::size_t largest, const Inputs& in);

/// The outputs on which the loss depends directly.
OutputSet outputs_of_loss(const Inputs& in);

}  // namespace attn
