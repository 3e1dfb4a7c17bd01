#include "attn/core/expected_error.h"

#include <algorithm>
#include <cmath>

#include "attn/core/error_ops.h"
#include "attn/core/formula.h"
#include "attn/core/fused.h"
#include "attn/core/gradient_error.h"
#include "attn/core/inputs_part.h"
#include "attn/core/layout.h"
#include "attn/kernel/thread_pool.h"

namespace attn {
namespace {

/// Elements of the matrices of scores and of their errors that a thread computes at once.
constexpr std::size_t kMostScores = std::size_t{1} << 19;

/// The error of an output with a row for each query, some queries at a time. Keys and values are
/// computed once.
Tensor error_by_rows(Output output, std::size_t axis, const Inputs& in,
                     const Precision& precision) {
  ErrorOps ops(in, precision);
  Formula<ErrorOps> formula(ops, in);
  const Bounded keys = formula.at(Output::present_K);
  const bool needs_values = output == Output::head_context || output == Output::output;
  const Bounded values = needs_values ? formula.at(Output::present_V) : Bounded{};
  const std::size_t rows = in.rows.size(), step = queries_of_errors(in);
  Tensor error;
  const auto compute = [&](std::size_t first) {
    const Inputs part = part_of(in, {{first, std::min(step, rows - first)}});
    ErrorOps part_ops(part, precision);
    Formula<ErrorOps> of_part(part_ops, part);
    of_part.provide(Output::present_K, keys);
    if (needs_values) of_part.provide(Output::present_V, values);
    put_part(part_ops.stored(of_part.at(output)).error, axis, first, rows, error);
  };
  compute(0);  // creates the tensor
  const std::size_t others = (rows - 1) / step;
  thread_pool().run(others, std::min(others, kMostErrorThreads),
                    [&](std::size_t i, std::size_t) { compute((i + 1) * step); });
  return error;
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
  if (is_of_gradients(request)) return missing_gradient_bound_reason(request, options);
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

Tensor expected_error(const Request& request, const Inputs& in, const Precision& precision) {
  if (is_of_gradients(request)) return expected_gradient_error(request, in, precision);
  const Output output = std::get<Output>(request);
  const Output computed = same_numbers_as(output);
  const std::optional<std::size_t> query_axis = row_of(computed).axes.find(Axis::L);
  Tensor error;
  if (query_axis && needs_scores(computed) && queries_of_errors(in) < in.rows.size()) {
    error = error_by_rows(computed, *query_axis, in, precision);
  } else {
    ErrorOps ops(in, precision);
    Formula<ErrorOps> formula(ops, in);
    error = ops.stored(formula.at(computed)).error;
  }
  const Tensor full = precision.stored == DType::f64 ? bounds::times(error, 2) : error;
  return to_user_layout(output, full, in);
}

}  // namespace attn
