#include "attn/attention/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <variant>

#include "attn/attention/formula.h"
#include "attn/attention/fused.h"
#include "attn/attention/fused_gradients.h"
#include "attn/attention/gradients.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/kernel_problem.h"
#include "attn/attention/projection.h"
#include "attn/attention/row_block.h"
#include "attn/attention/row_statistics.h"
#include "attn/attention/score.h"
#include "attn/base/slots.h"
#include "attn/kernel/schedule.h"
#include "attn/problem/layout.h"
#include "attn/problem/shapes.h"
#include "attn/problem/threads.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

double real_product(const Shape& factors) {
  double result = 1;
  for (const std::size_t factor : factors) result *= static_cast<double>(factor);
  return result;
}

/// The bytes of a tensor, saturating.
std::size_t bytes_of(const Shape& shape, std::size_t element) {
  std::size_t bytes = saturating_product(shape);
  if (__builtin_mul_overflow(bytes, element, &bytes))
    return std::numeric_limits<std::size_t>::max();
  return bytes;
}

/// The cost of a tensor of the formula.
struct Cost {
  Shape shape;  ///< with all axes
  bool is_integer = false;
  double flops = 0;      ///< of the operation that computes it
  bool is_made = false;  ///< by an operation
};

/// The operations of the formula on costs.
class CostOps {
 public:
  using Value = Cost;
  using Visible = std::monostate;

  explicit CostOps(const Inputs& inputs) : in_(inputs), rows_(inputs.rows.size()) {}

  /// The outputs that were evaluated.
  const std::optional<Cost>& cost(Output output) const { return costs_[output]; }
  bool adds_positions() const { return adds_positions_; }

  /// Of the tensors outside of the attention matrix that operations make, except weighted values.
  std::size_t elements_made() const { return made_; }

  Cost evaluated(Output output, const Cost& cost) {
    costs_[output] = cost;
    return {cost.shape, cost.is_integer, 0, cost.is_made};
  }

  Cost given(Input input) const { return {in_[input]->shape(), !is_float(in_[input]->dtype())}; }

  Cost chosen_rows(Cost x) {
    if (x.shape[x.shape.size() - 2] == rows_) return x;
    x.shape[x.shape.size() - 2] = rows_;
    return made(x);
  }

  Cost positions() const {
    const std::size_t M = in_[Input::embeddings]->shape()[2];
    return {{rows_, M}, false, real_product({in_.L, M})};
  }

  Cost add_positions(const Cost& embeddings) {
    adds_positions_ = true;
    const Position& position = in_.options.position;
    const bool changed = position.kind != Position::Kind::none || position.embedding_scale != 1 ||
                         position.embedding_scale_sqrt;
    const Cost inputs{embeddings.shape, embeddings.is_integer && !changed,
                      changed ? real_product(embeddings.shape) : 0};
    return changed ? made(inputs) : inputs;
  }

  Cost input_normalised(Cost x, const std::optional<Cost>&, const std::optional<Cost>&) {
    if (in_.options.input_norm == QkNorm::none) return x;
    x.is_integer = false;
    x.flops += 4 * real_product(x.shape);
    return made(x);
  }

  Cost project(const Cost& x, const std::optional<Cost>& W, const std::optional<Cost>& b,
               Output stage) {
    Cost y{x.shape, x.is_integer && is_integer(W) && is_integer(b)};
    if (W) {
      y.shape.back() = W->shape.back();
      y.flops = 2 * real_product(y.shape) * static_cast<double>(x.shape.back());
    }
    if (stage == Output::output) y.flops += x.flops;  // of W_UV
    return W || b ? made(y) : y;
  }

  Cost split_heads(const Cost& x, std::size_t heads) {
    return made({{x.shape[0], heads, x.shape[1], x.shape[2] / heads}, x.is_integer, x.flops});
  }

  Cost clipped(const Cost& x) { return converted_if(in_.options.clip_qkv > 0, x); }

  Cost qk_normalised(const Cost& x, const std::optional<Cost>&, const std::optional<Cost>&) {
    return converted_if(in_.options.qk_norm != QkNorm::none, x);
  }

  Cost rotated_queries(const Cost& x, const std::optional<Cost>&, const std::optional<Cost>&) {
    return converted_if(in_.options.rotary.kind != Rotary::Kind::none, x);
  }
  Cost rotated_keys(const Cost& x, const std::optional<Cost>& cos, const std::optional<Cost>& sin) {
    return rotated_queries(x, cos, sin);
  }

  Cost scaled_by_position(const Cost& queries) {
    return converted_if(in_.options.query_scale.factor != 0, queries);
  }

  Cost append(const Cost& before, const Cost& behind) {
    Cost all{before.shape, before.is_integer && behind.is_integer};
    all.shape[2] += behind.shape[2];
    return made(all);
  }

  Cost append_zero(Cost x) {
    ++x.shape[2];
    return made(x);
  }

  Cost score(const Cost& queries, const Cost& keys, const ScoreWeights<Cost>& weights) const {
    const bool is_exact = in_.options.score == Score::dot ||
                          (in_.options.score == Score::general && is_integer(weights.W));
    Cost scores{{in_.B, in_.H, rows_, keys.shape[2]},
                is_exact && !rounds_factors_to_bf16(in_) && queries.is_integer && keys.is_integer};
    scores.flops = 2 * static_cast<double>(in_.D) * real_product(scores.shape);
    return scores;
  }

  Cost scale(const Cost& scores, const std::optional<Cost>&) const {
    return {scores.shape, false, real_product(scores.shape)};
  }

  std::pair<Cost, Visible> mask(const Cost& scaled, const Biases<Cost>&) const {
    return {{scaled.shape, false, real_product(scaled.shape)}, {}};
  }

  std::pair<Cost, Cost> normalise(const Cost& masked, Visible, const std::optional<Cost>&) const {
    const double count = real_product(masked.shape);
    return {{masked.shape, false, 4 * count}, {rows_of(masked), false, count}};
  }

  Cost reported_logsumexp(const Cost& natural) const { return natural; }

  Cost dropped(const Cost& weights) const {
    return {weights.shape, false, real_product(weights.shape)};
  }

  Cost mean_over_heads(const Cost& weights) const {
    return {{in_.B, rows_, weights.shape[3]}, false, real_product(weights.shape)};
  }
  Cost sum_over_queries(const Cost& weights) const {
    return {{in_.B, in_.H, weights.shape[3]}, false, real_product(weights.shape)};
  }
  Cost row_statistic(Output statistic, const Cost& matrix) const {
    return {rows_of(matrix), false,
            statistic_of(statistic).operations * real_product(matrix.shape)};
  }

  Cost weighted_values(const Cost& weights, const Cost& values, Visible) const {
    Cost context{{in_.B, in_.H, rows_, values.shape[3]}};
    context.flops = 2 * real_product(context.shape) * static_cast<double>(weights.shape[3]);
    return context;
  }

  Cost sigmoid(const Cost& x) {
    return made({x.shape, false, x.flops + 3 * real_product(x.shape)});
  }
  Cost divided(const Cost& x, double) {
    return made({x.shape, false, x.flops + real_product(x.shape)});
  }
  Cost gated(const Cost& context, const Cost&) {
    return made({context.shape, false, context.flops + real_product(context.shape)});
  }

  Cost join_heads(const Cost& x) {
    return made({{x.shape[0], x.shape[2], x.shape[1] * x.shape[3]}, x.is_integer, x.flops});
  }
  Cost swap_batch_and_heads(const Cost& x) {
    return made({{x.shape[1], x.shape[0], x.shape[2], x.shape[3]}, x.is_integer, x.flops});
  }

 private:
  Cost made(Cost cost) {
    made_ = saturating_sum(made_, saturating_product(cost.shape));
    cost.is_made = true;
    return cost;
  }
  /// x, or a new tensor of floating-point numbers.
  Cost converted_if(bool changes, Cost x) {
    if (!changes) return x;
    x.is_integer = false;
    return made(x);
  }

  static bool is_integer(const std::optional<Cost>& x) { return !x || x->is_integer; }
  static Shape rows_of(const Cost& matrix) {
    return {matrix.shape[0], matrix.shape[1], matrix.shape[2]};
  }

  const Inputs& in_;
  const std::size_t rows_;
  bool adds_positions_ = false;
  std::size_t made_ = 0;
  Slots<Output, kOutputs.size(), Cost> costs_;
};

/// Whether the formula computes the output.
bool is_of_formula(Output output) {
  const Phase phase = row_of(output).phase;
  return phase != Phase::given && phase != Phase::gradient;
}

/// The costs of all outputs that are computed for `outputs`.
CostOps costs_of(const OutputSet& outputs, const Inputs& in) {
  CostOps ops(in);
  Formula<CostOps> formula(ops, in);
  for (const OutputRow& row : kOutputs)
    if (outputs.contains(row.output) && is_of_formula(row.output))
      formula.at(same_numbers_as(row.output)), formula.at(row.output);
  // Keys and values need all rows of `inputs`; their cost is that of the output. The fused kernels
  // compute row_max in the same pass as the weights.
  if (ops.adds_positions()) formula.at(Output::inputs);
  if (outputs.contains(Output::row_max)) formula.at(Output::weights);
  return ops;
}

std::size_t bytes_of(Output output, const Cost& cost, const Inputs& in) {
  const std::size_t visible = output == Output::masked_scores ? 1 : 0;  // a boolean for each score
  return bytes_of(cost.shape, size_of(cost.is_integer ? DType::i64 : in.compute) + visible);
}

PlannedOutput planned(const Request& request, const CostOps& costs, const Inputs& in) {
  if (const Input* input = std::get_if<Input>(&request)) {
    const Tensor& tensor = at(in.tensors, *input);
    return {.request = request,
            .shape = tensor.shape(),
            .dtype = tensor.dtype(),
            .bytes = tensor.bytes(),
            .axes = user_axes(*input, tensor.shape(), in.options, in.with_heads)};
  }
  if (const Gradient* gradient = std::get_if<Gradient>(&request)) {
    const Shape shape = gradient_shape(gradient->of, in);
    return {.request = request,
            .shape = shape,
            .dtype = in.result,
            .bytes = bytes_of(shape, size_of(in.result)),
            .axes = gradient_axes(gradient->of, in)};
  }
  const Output output = std::get<Output>(request);
  if (output == Output::delta) {
    const Shape shape = to_user_shape(output, full_shape(output, in), in);
    return {.request = request,
            .shape = shape,
            .dtype = float_dtype_of(output, in),
            .bytes = bytes_of(shape, size_of(in.compute)),
            .axes = user_axes(output, in)};
  }
  if (row_of(output).phase == Phase::given) {
    const Tensor& W = at(in.tensors, *row_of(output).source);
    const std::size_t heads = row_of(output).axes[0] == Axis::H ? in.H : in.G;
    return {.request = request,
            .shape = {heads, W.shape()[0], W.shape()[1] / heads},
            .dtype = W.dtype(),
            .bytes = W.bytes(),
            .axes = row_of(output).axes};
  }
  const Cost& cost = *costs.cost(same_numbers_as(output));
  const DType dtype = cost.is_integer ? DType::i64 : float_dtype_of(output, in);
  const Shape shape = to_user_shape(output, cost.shape, in);
  return {.request = request,
          .shape = shape,
          .dtype = dtype,
          .bytes = bytes_of(shape, size_of(dtype)),
          .flops = cost.flops,
          .axes = user_axes(output, in)};
}

/// Outputs that are the given keys and values if there is nothing between these and the scores.
constexpr std::array kGivenRows = {Output::keys, Output::values, Output::present_K,
                                   Output::present_V};

/// Whether nothing changes the numbers of K and V.
bool leaves_keys(const Inputs& in) {
  const Options& options = in.options;
  return options.score == Score::dot && options.clip_qkv == 0 && options.qk_norm == QkNorm::none &&
         options.rotary.kind == Rotary::Kind::none && in.P + in.E == 0;
}

/// Whether the kernels read keys and values where they are in a pool, or as they are stored.
bool reads_rows(const Inputs& in, const std::vector<Request>& outputs) {
  const auto is_in_place = [](const std::optional<Tensor>& rows) {
    return rows && (row_table_of(*rows) != nullptr || rows->narrow() != nullptr);
  };
  return is_in_place(in[Input::K]) && is_in_place(in[Input::V]) && leaves_keys(in) &&
         std::none_of(outputs.begin(), outputs.end(), [](const Request& request) {
           const Output* output = std::get_if<Output>(&request);
           return output == nullptr || is_of_gradients(request) ||
                  std::find(kGivenRows.begin(), kGivenRows.end(), *output) != kGivenRows.end();
         });
}

/// Which inputs are copied in the dtype of the computation.
enum class Copies { all, except_rows, except_floats };

/// Whether this is a mask or a flag that is not converted.
bool is_used_as_boolean(const std::string& name, const Tensor& tensor) {
  if (tensor.dtype() != DType::boolean) return false;
  const std::optional<Input> input = input_named(name);
  return input &&
         (row_of(*input).kind == InputKind::mask || row_of(*input).kind == InputKind::flag);
}

/// Whether the tensor is converted when something other than a kernel reads it.
bool is_narrow(const Inputs& in, const std::string& name) {
  const std::optional<Input> input = input_named(name);
  return input && may_stay_narrow(*input) && in[*input]->narrow() != nullptr;
}

/// Bytes of the tensors and of these copies.
std::size_t bytes_of_inputs(const Inputs& in, Copies copies) {
  std::size_t bytes = 0;
  std::set<const std::byte*> pools;
  for (const auto& [name, tensor] : in.tensors) {
    if (const GatheredRows* rows = tensor.rows()) {
      for (const RowTable* part = rows->table().get(); part != nullptr; part = part->rest.get()) {
        bytes = saturating_sum(bytes, part->rows->size() * sizeof(std::int64_t));
        if (part->factors)
          bytes = saturating_sum(bytes, part->factors->factors.size() * sizeof(double) +
                                            part->factors->starts.size() * sizeof(std::int64_t));
        if (pools.insert(part->pool.raw()).second)
          bytes = saturating_sum(bytes, part->pool.bytes());
      }
      if (copies != Copies::all) continue;
    }
    const DType used = is_float(tensor.dtype()) ? in.compute : DType::i64;
    if (!tensor.rows()) bytes = saturating_sum(bytes, tensor.bytes());
    if (copies == Copies::except_floats && is_float(tensor.dtype())) continue;
    // If something converts them, the copies are those counted as queries, keys and values.
    if (is_narrow(in, name) && leaves_keys(in) && in.options.query_scale.factor == 0) continue;
    if ((tensor.rows() || tensor.dtype() != used) && !is_used_as_boolean(name, tensor))
      bytes = saturating_sum(bytes, saturating_product({tensor.size(), size_of(used)}));
  }
  if (in.B > 1)  // copies of those that the batch shares
    for (const auto& [input, whole] : {std::pair{Input::memory, &in[Input::memory]},
                                       std::pair{Input::memory_V, &in[Input::memory_V]}})
      if (contains(in.tensors, input) && at(in.tensors, input).rank() == 2)
        bytes = saturating_sum(bytes, (*whole)->bytes());
  return bytes;
}

/// What the kernels of gradients read. Only what the formula computes is in float64.
OperandSources operand_sources(const CostOps& costs, const Inputs& in) {
  const auto source = [&](Input input, bool is_made) {
    if (is_made || !contains(in.tensors, input) ||
        (in.compute == DType::f64 && !in[input]->narrow()))
      return OperandSource::computed;
    const Tensor& given = at(in.tensors, input);
    if (given.size() != in[input]->size()) return OperandSource::computed;
    if (const GatheredRows* rows = given.rows())  // read where they are
      return rows->table()->has_factors() ? OperandSource::computed : OperandSource::converted;
    return given.raw() == in[input]->stored().raw() ? OperandSource::given
                                                    : OperandSource::converted;
  };
  const auto is_made = [&](Output output) {
    const std::optional<Cost>& cost = costs.cost(output);
    return !cost || cost->is_made;
  };
  const bool has_other_loss = in[Input::grad_output] || in[Input::grad_logsumexp];
  return {source(Input::Q, is_made(Output::queries)),
          source(Input::K, in.E > 0 || is_made(Output::present_K)),
          source(Input::V, in.E > 0 || is_made(Output::present_V)),
          source(Input::grad_context, has_other_loss || is_made(Output::head_context))};
}

/// Upper bound of the memory of gradients whose attention the kernels compute.
std::size_t bytes_of_fused_gradients(const CostOps& costs, const std::vector<Request>& outputs,
                                     const Inputs& in) {
  const OperandSources sources = operand_sources(costs, in);
  std::map<Input, OperandSource> narrow;  // those without copies in float64
  for (const auto& [input, source] :
       {std::pair{Input::Q, sources.queries}, std::pair{Input::K, sources.keys},
        std::pair{Input::V, sources.values}, std::pair{Input::grad_context, sources.grad_context}})
    if (source != OperandSource::computed) narrow.emplace(input, source);
  if (in.compute != DType::f64 && in.E == 0 && in.rows.size() == in.L)
    for (const Input bias : kKernelBiases) narrow.emplace(bias, OperandSource::given);
  std::size_t wide = costs.elements_made(), converted = 0;  // elements in float64, and bytes
  for (const auto& [name, tensor] : in.tensors) {
    const std::optional<Input> input = input_named(name);
    if (!input) continue;  // a table of a rule
    // Operations on these change a copy, which is counted.
    const bool is_copied = in.P == 0 && in.compute != DType::f64 &&
                           (input == Input::Q || input == Input::K || input == Input::V);
    if (is_float(tensor.dtype()) && tensor.dtype() != DType::f64 && !is_copied &&
        !narrow.contains(*input))
      wide = saturating_sum(wide, tensor.size());
  }
  for (const Request& request : outputs)
    if (const Gradient* gradient = std::get_if<Gradient>(&request)) {
      const std::size_t elements = saturating_product(gradient_shape(gradient->of, in));
      const auto found = narrow.find(gradient->of);
      if (found == narrow.end())
        wide = saturating_sum(wide, elements);
      else if (found->second == OperandSource::given && in.result != in.compute)
        converted = saturating_sum(converted, saturating_product({elements, size_of(in.result)}));
    }
  // Tensors that are made, then their derivatives, while those by the operands of attention exist.
  const std::size_t back = saturating_product({costs.elements_made(), sizeof(double)});
  const auto [kept, passing] = bytes_of_attended(in, sources);
  std::size_t bytes = saturating_sum(kept, std::max(back, passing));
  bytes = saturating_sum(bytes, converted);
  return saturating_sum(bytes, saturating_product({wide, sizeof(double)}));
}

/// Adds what the gradients cost, in equal shares. Each product has two derivatives, which are
/// products of the same size. Kernels compute the scores twice, and keep none.
void add_gradients(const Inputs& in, const std::vector<Request>& outputs, Plan& plan) {
  const char* reason = gradient_fallback_reason(in, outputs);
  const CostOps costs = costs_of(outputs_of_loss(in), in);
  std::size_t bytes = 0, largest = 0;
  double flops = 0;
  for (const OutputRow& row : kOutputs) {
    const std::optional<Cost>& cost = costs.cost(row.output);
    if (!cost) continue;
    flops += (!reason && row.output == Output::scores ? 4 : 3) * cost->flops;
    if (!reason && is_score_matrix(row.output)) continue;
    const std::size_t wide =
        bytes_of(cost->shape, sizeof(double) + (row.output == Output::masked_scores ? 1 : 0));
    bytes = saturating_sum(bytes, wide);
    largest = std::max(largest, wide);
  }
  plan.flops += flops;
  const auto count =
      std::count_if(plan.outputs.begin(), plan.outputs.end(),
                    [](const auto& output) { return is_of_gradients(output.request); });
  for (PlannedOutput& output : plan.outputs)
    if (is_of_gradients(output.request)) output.flops = flops / static_cast<double>(count);
  plan.bytes = saturating_sum(plan.bytes, reason ? bytes_of_gradients(bytes, largest, in)
                                                 : bytes_of_fused_gradients(costs, outputs, in));
  if (!plan.fallback_reason) plan.fallback_reason = reason;
  plan.path = plan.fallback_reason ? "reference" : "kernels";
}

/// Whether queries, keys or values are integers, which only the reference path computes.
bool has_integers(const CostOps& costs) {
  for (const Output factor : {Output::queries, Output::present_K, Output::present_V})
    if (const auto& cost = costs.cost(factor); cost && cost->is_integer) return true;
  return false;
}

}  // namespace

/// The columns of the queries and keys of which the kernels compute scores.
std::size_t width_of_factors(const Inputs& in) {
  std::size_t width = in.D;
  for (const Input weights : {Input::W_score, Input::W_score_Q})
    if (in[weights]) width = in[weights]->shape()[1];
  return width;
}

/// Upper bound of the blocks of queries, keys and values in which each thread of the kernels works.
/// With few columns they are part of the memory of the program.
std::size_t bytes_of_blocks(const Inputs& in) {
  constexpr std::size_t kRows = 640, kFewColumns = 512, kKeys = 512;
  const std::size_t columns = saturating_sum(width_of_factors(in), in.Dv);
  if (columns <= kFewColumns) return 0;
  const std::size_t tasks =
      saturating_product({in.B, in.H, saturating_product({in.rows.size(), in.S / kKeys + 1})});
  return saturating_product({std::min(thread_count(), tasks), kRows, columns, sizeof(double)});
}

/// Upper bound of the rows of scores in which each thread of the kernels works if it needs whole
/// rows. Short rows are part of the memory of the program.
std::size_t bytes_of_whole_rows(const Inputs& in) {
  constexpr std::size_t kRows = 6, kScoreMatrices = 2, kFewKeys = 16384;
  if (in.options.normaliser == Normaliser::softmax || in.S <= kFewKeys) return 0;
  const std::size_t rows = saturating_product({in.B, in.H, in.rows.size()});
  return saturating_product(
      {std::min(thread_count(), rows), kRows * kScoreMatrices, in.S, size_of(in.compute)});
}

/// Upper bound of the queries and keys that the kernels take instead of the given ones, and of two
/// copies of one of them: in float64, and rounded.
std::size_t bytes_of_factors(const Inputs& in) {
  if (in.options.score == Score::dot || in.options.score == Score::l2) return 0;
  const std::size_t width = width_of_factors(in);
  const std::size_t queries = saturating_product({in.B, in.H, in.rows.size(), width});
  const std::size_t keys = saturating_product({in.B, in.G, in.S, width});
  return saturating_sum(
      saturating_product({saturating_sum(queries, keys), size_of(in.compute)}),
      saturating_product({std::max(queries, keys), sizeof(double) + size_of(in.compute)}));
}

Plan plan(const Inputs& in, const std::vector<Request>& outputs, const OutputSet& offered) {
  check_outputs(outputs, in);
  const OutputSet requested = outputs_among(outputs);
  const CostOps costs = costs_of(requested, in);
  Plan result;
  if (requested.needs_scores()) {
    result.fallback_reason = has_integers(costs) ? "integers" : fallback_reason(in);
    result.path = result.fallback_reason ? "reference" : "kernels";
  }
  const bool is_fused = result.path && !result.fallback_reason;
  if (is_fused)
    for (const std::size_t bytes : {bytes_of_blocks(in), bytes_of_whole_rows(in),
                                    bytes_of_factors(in), bytes_of_kernel_problem(in, false)})
      result.bytes = saturating_sum(result.bytes, bytes);
  const bool in_rows = is_fused && reads_rows(in, outputs);
  if (in_rows && in.H / in.G * in.rows.size() > kernel::kMaxRows)
    result.bytes = saturating_sum(result.bytes, bytes_of_packed(in));
  OutputSet kept;
  result.outputs.reserve(outputs.size());
  for (const Request& request : outputs) {
    PlannedOutput output = planned(request, costs, in);
    const Output* computed = std::get_if<Output>(&request);
    if (computed != nullptr && is_of_formula(*computed)) {
      output.streamed =
          is_fused && offered.contains(*computed) && is_streamed(*computed, requested);
      if (!output.streamed) kept.insert(*computed);
      if (!output.streamed && in.result != in.compute)
        result.bytes = saturating_sum(result.bytes, output.bytes);
    }
    result.outputs.push_back(std::move(output));
  }
  if (is_fused &&
      (requested.contains(Output::mean_weights) || requested.contains(Output::key_weights)))
    kept.insert(Output::weights);
  std::size_t largest = 0;
  const std::size_t rows = in.rows.size(), at_a_time = reference_rows_at_a_time(in, requested);
  for (const OutputRow& row : kOutputs) {
    const std::optional<Cost>& cost = costs.cost(row.output);
    if (!cost) continue;
    result.flops += cost->flops;
    if (in_rows && std::find(kGivenRows.begin(), kGivenRows.end(), row.output) != kGivenRows.end())
      continue;
    const bool is_in_parts = is_score_matrix(row.output) && (is_fused || at_a_time < rows);
    const std::size_t bytes = bytes_of(row.output, *cost, in);
    if (is_in_parts && !is_fused)
      result.bytes =
          saturating_sum(result.bytes, saturating_product({bytes / rows + 1, at_a_time}));
    if (is_in_parts && !kept.contains(row.output)) continue;
    largest = std::max(largest, bytes);
    result.bytes = saturating_sum(result.bytes, bytes);
  }
  // Gradients have their own copies of inputs, in float64.
  const bool is_backward = std::all_of(outputs.begin(), outputs.end(), is_of_gradients);
  const Copies copies = is_backward ? Copies::except_floats
                        : in_rows   ? Copies::except_rows
                                    : Copies::all;
  result.bytes = saturating_sum(result.bytes, saturating_sum(largest, bytes_of_inputs(in, copies)));
  if (std::any_of(outputs.begin(), outputs.end(), is_of_gradients))
    add_gradients(in, outputs, result);
  return result;
}

}  // namespace attn
