#include "attn/attention/fused_gradients.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "attn/attention/derivatives.h"
#include "attn/attention/fused.h"
#include "attn/attention/kernel_problem.h"
#include "attn/kernel/backward.h"
#include "attn/kernel/schedule.h"
#include "attn/problem/mask.h"
#include "attn/problem/threads.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/widened.h"

namespace attn {
namespace {

template <class T>
T* data_of(std::optional<Tensor>& tensor) {
  return tensor ? tensor->mutable_data<T>().data() : nullptr;
}

/// The derivative by a bias (problem/inputs.h) from that by fitted_mask() of it.
Tensor unfitted(Tensor g, const Tensor& bias, const Inputs& in) {
  const Shape shape = bias.shape();
  if (in.E > 0) {
    const Shape& wide = g.shape();
    const std::size_t keys = in.P + in.N, rows = wide[0] * wide[1] * wide[2];
    Tensor narrow(DType::f64, {wide[0], wide[1], wide[2], shape[3]});
    const auto to = narrow.mutable_data<double>();
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t j = 0; j < keys; ++j)
        to[row * shape[3] + (shape[3] == 1 ? 0 : j)] += g.data<double>()[row * in.S + j];
    g = narrow;
  }
  return takes_rows(bias, in) ? scattered_rows(g, in.rows, shape[2]) : g;
}

template <class T>
AttendedDerivatives derivatives_as(const Attended& of, const Tensor& g,
                                   const std::optional<Tensor>& of_logsumexp,
                                   const AttendedRequest& request) {
  const Inputs& in = *of.in;
  const Tensor grad = cast(g, dtype_of<T>);
  const Tensor exact_delta = request.delta != nullptr ? *request.delta : delta_of(of.context, g);
  const Tensor delta = cast(exact_delta, dtype_of<T>);
  const Tensor extra = of_logsumexp ? cast(*of_logsumexp, dtype_of<T>) : Tensor();
  KernelProblem<T> given(in);
  kernel::BackwardProblem<T> problem;
  problem.problem = given.problem;
  problem.problem.D = of.keys.shape()[3], problem.problem.Dv = of.values.shape()[3];
  problem.problem.q = operand_of(of.queries), problem.problem.k = row_operand_of(of.keys);
  problem.problem.v = row_operand_of(of.values), problem.grad_context = operand_of(grad);
  problem.logsumexp = of.logsumexp.data<T>().data();
  if (of.remainder) problem.remainder = of.remainder->data<T>().data();
  problem.delta = delta.data<T>().data();
  if (of_logsumexp) problem.grad_logsumexp = extra.data<T>().data();

  const auto made = [](bool is_wanted, const Tensor& like) {
    return is_wanted ? std::optional(Tensor(dtype_of<T>, like.shape())) : std::nullopt;
  };
  std::optional<Tensor> queries = made(request.queries, of.queries),
                        keys = made(request.keys, of.keys),
                        values = made(request.values, of.values), sinks;
  if (in[Input::sinks]) sinks.emplace(dtype_of<T>, Shape{in.H});
  std::array<std::optional<Tensor>, kKernelBiases.size()> biases;
  kernel::BackwardResults<T> gradients{.q = data_of<T>(queries),
                                       .k = data_of<T>(keys),
                                       .v = data_of<T>(values),
                                       .biases = {},
                                       .sinks = data_of<T>(sinks)};
  std::size_t slot = in.bias_rule ? 1 : 0;  // in problem.biases, in the same order
  for (std::size_t i = 0; i < kKernelBiases.size(); ++i) {
    const std::optional<Tensor>& bias = in[kKernelBiases[i]];
    if (!bias || !is_added(kKernelBiases[i], *bias)) continue;
    if (request.biases[i]) {
      biases[i].emplace(dtype_of<T>, fitted_mask(*bias, in, in.options.mask_polarity).shape());
      gradients.biases[slot] = data_of<T>(biases[i]);
    }
    ++slot;
  }
  kernel::attend_backward(problem, gradients, thread_pool());

  const auto wide = [](const std::optional<Tensor>& x) {
    return x ? widened(*x, DType::f64) : Tensor();
  };
  AttendedDerivatives result{wide(queries), wide(keys), wide(values), {}, {}, exact_delta};
  for (std::size_t i = 0; i < kKernelBiases.size(); ++i)
    if (biases[i])
      result.biases[i] = unfitted(widened(*biases[i], DType::f64), *in[kKernelBiases[i]], in);
  if (sinks) result.sinks = cast(*sinks, DType::f64);
  return result;
}

}  // namespace

const char* gradient_fallback_reason(const Inputs& in, const std::vector<Request>& requests) {
  if (const char* reason = fallback_reason(in)) return reason;
  if (in.options.score != Score::dot) return "score";
  if (in.options.normaliser != Normaliser::softmax) return "normaliser";
  if (has_distance_bias(in)) return in[Input::alibi_slopes] ? "alibi" : "relative_bias";
  if (has_summed_biases(in)) return "bias";
  if (in.options.empty_rows == EmptyRows::uniform) return "empty_rows";
  if (in[Input::grad_weights]) return "grad_weights";
  if (in[Input::grad_logsumexp] && leaves_sinks_out(in)) return "lse_sinks";
  for (const auto& [input, name] : {std::pair{Input::head_scale, "grad_head_scale"},
                                    {Input::alibi_slopes, "grad_alibi_slopes"},
                                    {Input::relative_bias, "grad_relative_bias"}})
    if (std::find(requests.begin(), requests.end(), Request{Gradient{input}}) != requests.end())
      return name;
  return nullptr;
}

std::optional<Attended> attend_for_gradients(const Tensor& queries, const Tensor& keys,
                                             const Tensor& values, const Inputs& in,
                                             const Inputs& wide) {
  for (const Inputs* problem : {&in, &wide}) {
    Attended result{.in = problem,
                    .queries = widened(queries, problem->compute),
                    .keys = widened(keys, problem->compute),
                    .values = widened(values, problem->compute),
                    .context = {},
                    .logsumexp = {},
                    .remainder = {}};
    FusedRequest request;
    request.remainder = true;
    request.kept.insert(Output::head_context);
    auto [outputs, overflowed, remainder] =
        attend_fused(result.queries, result.keys, result.values, *problem, request);
    if (!overflowed.empty()) continue;
    result.context = std::move(*outputs[index_of(Output::head_context)]);
    result.logsumexp = std::move(*outputs[index_of(Output::logsumexp)]);
    result.remainder = std::move(remainder);
    return result;
  }
  return std::nullopt;
}

Tensor delta_of(const Tensor& context, const Tensor& g) {
  constexpr std::size_t kRows = 1024;  // converted together
  const Shape& shape = context.shape();
  const std::size_t columns = shape[3];
  Tensor delta(DType::f64, {shape[0], shape[1], shape[2]});
  const auto sums = delta.mutable_data<double>();
  const Shape matrix{sums.size(), columns};
  const Tensor all = context.reshaped(matrix), all_factors = g.reshaped(matrix);
  for (std::size_t first = 0; first < sums.size(); first += kRows) {
    const std::size_t count = std::min(kRows, sums.size() - first);
    const Tensor elements = cast(all.range(first, count), DType::f64);
    const Tensor factors = cast(all_factors.range(first, count), DType::f64);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = elements.data<double>().subspan(i * columns, columns);
      const auto factor = factors.data<double>().subspan(i * columns, columns);
      // A query without keys has the context 0, whatever its derivative is.
      if (std::any_of(row.begin(), row.end(), [](double x) { return x != 0; }))
        for (std::size_t j = 0; j < columns; ++j) sums[first + i] += chained(factor[j], row[j]);
    }
  }
  return delta;
}

AttendedDerivatives attended_derivatives(const Attended& of, const Tensor& g,
                                         const std::optional<Tensor>& of_logsumexp,
                                         const AttendedRequest& request) {
  return of.in->compute == DType::f32 ? derivatives_as<float>(of, g, of_logsumexp, request)
                                      : derivatives_as<double>(of, g, of_logsumexp, request);
}

AttendedBytes bytes_of_attended(const Inputs& in, const OperandSources& sources) {
  const std::size_t rows = saturating_product({in.B, in.H, in.rows.size()});
  const std::size_t keys = saturating_product({in.B, in.G, in.S});
  const std::size_t own = size_of(in.compute), narrow = in.compute == DType::f64 ? 0 : own;
  kernel::AttentionProblem<double> widths;  // float32 may not suffice
  widths.D = in.D, widths.Dv = in.Dv, widths.softcap = in.options.softcap;
  const std::size_t blocks =
      saturating_product({std::min(thread_count(), rows + in.S), kernel::backward_bytes(widths)});
  std::size_t kept = 0, passing = blocks;
  const auto add = [](std::size_t& sum, std::size_t elements, std::size_t size) {
    sum = saturating_sum(sum, saturating_product({elements, size}));
  };
  // An operand and its derivative, or the context and its derivative, with their copies.
  const auto add_pair = [&](OperandSource source, std::size_t elements, std::size_t wide) {
    add(kept, elements,
        source == OperandSource::given       ? own
        : source == OperandSource::converted ? 2 * own
                                             : narrow + wide);
    if (source != OperandSource::given) add(passing, elements, narrow);
  };
  add_pair(sources.queries, saturating_product({rows, in.D}), sizeof(double));
  add_pair(sources.keys, saturating_product({keys, in.D}), sizeof(double));
  add_pair(sources.values, saturating_product({keys, in.Dv}), sizeof(double));
  add_pair(sources.grad_context, saturating_product({rows, in.Dv}), 2 * sizeof(double));
  kept = saturating_sum(kept, bytes_of_packed(in));
  add(kept, rows, 6 * sizeof(double));
  add(kept, bytes_of_kernel_problem(in, true), 1);
  add(passing, bytes_of_kernel_problem(in, true), 1);
  const bool is_fitted = in.E == 0 && in.rows.size() == in.L;  // otherwise biases are copied
  for (const Input input : kKernelBiases)
    if (in[input] && is_added(input, *in[input])) {
      const bool is_converted = at(in.tensors, input).dtype() != in.compute;
      add(passing, in[input]->size(),
          narrow + (is_converted ? narrow : 0) + (is_fitted ? 0 : sizeof(double)));
    }
  if (const std::optional<Tensor>& mask = in[Input::dropout_mask]) add(passing, mask->size(), 1);
  return {kept, passing};
}

}  // namespace attn
