#include "attn/core/expected_error.h"

#include <algorithm>
#include <cmath>

#include "attn/core/error_ops.h"
#include "attn/core/formula.h"
#include "attn/core/fused.h"
#include "attn/core/gradient_error.h"
#include "attn/core/inputs_part.h"
#include "attn/core/layout.h"

namespace attn {
namespace {

/// Elements of the matrices of scores and of their errors that a thread computes at once.
constexpr std::size_t kMostScores = std::size_t{1} << 19;

/// An output with a row for each query, some queries at a time. Keys and values are computed once.
Expected expected_by_rows(Output output, std::size_t axis, const Inputs& in,
                          const Precision& precision, InputErrors& known) {
  ErrorOps ops(in, precision, &known);
  Formula<ErrorOps> formula(ops, in);
  const Bounded keys = formula.at(Output::present_K);
  const bool needs_values = output == Output::head_context || output == Output::output;
  const Bounded values = needs_values ? formula.at(Output::present_V) : Bounded{};
  const std::size_t rows = in.rows.size(), step = queries_of_errors(in);
  Expected all;
  const auto compute = [&](std::size_t first) {
    const Inputs part = part_of(in, {{first, std::min(step, rows - first)}});
    ErrorOps part_ops(part, precision, &known);
    Formula<ErrorOps> of_part(part_ops, part);
    of_part.provide(Output::present_K, keys);
    if (needs_values) of_part.provide(Output::present_V, values);
    const Bounded& found = of_part.at(output);
    put_part(found.value, axis, first, rows, all.value);
    put_part(part_ops.stored(found).error, axis, first, rows, all.error);
  };
  compute(0);  // creates the tensors
  const std::size_t others = (rows - 1) / step;
  run_in_parallel(others, kMostErrorThreads, [&](std::size_t i) { compute((i + 1) * step); });
  return all;
}

}  // namespace

std::size_t queries_of_errors(const Inputs& in) { return rows_at_a_time(in, kMostScores); }

std::optional<Precision> precision_named(std::string_view name) {
  const auto unit = [](int bits) { return std::ldexp(1.0, -bits); };
  if (name == "f64") return Precision{"f64", DType::f64, unit(53), unit(53), unit(53), unit(1022)};
  if (name == "f32") return Precision{"f32", DType::f32, unit(24), unit(24), unit(24), unit(126)};
  if (name == "tf32") return Precision{"tf32", DType::f32, unit(24), unit(11), unit(24), unit(126)};
  if (name == "f16") return Precision{"f16", DType::f16, unit(11), unit(11), unit(24), unit(24)};
  if (name == "bf16") return Precision{"bf16", DType::bf16, unit(8), unit(8), unit(24), unit(126)};
  return std::nullopt;
}

Precision with_sums_in(Precision precision, const Precision& sums) {
  precision.name += " with sums in " + sums.name;
  precision.sum = sums.result;
  return precision;
}

std::string missing_bound_reason(const Request& request, const Options& options) {
  if (is_of_gradients(request)) return missing_gradient_bound_reason(options);
  const Output* output = std::get_if<Output>(&request);
  if (!output || !row_of(*output).has_error_bound) return "for " + std::string(name_of(request));
  if (*output == Output::values || *output == Output::present_V || *output == Output::gates)
    return "";
  if (row_of(*output).phase == Phase::projection) return "";
  if (options.score != Score::dot) return "for score functions other than dot";
  if (row_of(*output).phase == Phase::scores || *output == Output::masked_scores) return "";
  if (options.normaliser != Normaliser::softmax) return "for normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  return "";
}

bool is_expected_by_rows(Output output, const Inputs& in) {
  const Output computed = same_numbers_as(output);
  return row_of(computed).axes.find(Axis::L) && needs_scores(computed) &&
         queries_of_errors(in) < in.rows.size();
}

Expected expected(Output output, const Inputs& in, const Precision& precision, InputErrors* known) {
  const Output computed = same_numbers_as(output);
  InputErrors own;
  if (known == nullptr) known = &own;
  Expected found;
  if (is_expected_by_rows(output, in)) {
    found = expected_by_rows(computed, *row_of(computed).axes.find(Axis::L), in, precision, *known);
  } else {
    ErrorOps ops(in, precision, known);
    Formula<ErrorOps> formula(ops, in);
    const Bounded& bounded = formula.at(computed);
    found = {bounded.value, ops.stored(bounded).error};
  }
  // The reference has the rounding errors of f64, too.
  if (precision.stored == DType::f64) found.error = bounds::times(std::move(found.error), 2);
  return {to_user_layout(output, found.value, in), to_user_layout(output, found.error, in)};
}

Tensor expected_error(const Request& request, const Inputs& in, const Precision& precision,
                      InputErrors* known) {
  if (is_of_gradients(request)) return expected_gradient_error(request, in, precision);
  return expected(std::get<Output>(request), in, precision, known).error;
}

}  // namespace attn
