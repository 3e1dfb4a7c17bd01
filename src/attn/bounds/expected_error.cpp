#include "attn/bounds/expected_error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "attn/attention/formula.h"
#include "attn/attention/inputs_part.h"
#include "attn/base/memory_limit.h"
#include "attn/bounds/error_ops.h"
#include "attn/bounds/gradient_error.h"
#include "attn/problem/layout.h"
#include "attn/problem/threads.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// Elements of the matrices of scores and of their errors that a thread computes at once.
constexpr std::size_t kMostScores = std::size_t{1} << 19;
constexpr std::size_t kMostThreads = 4;

/// The queries that a thread computes at a time, of the heads that share a key/value head.
std::size_t queries_of_part(const Inputs& in) {
  Inputs group = in;
  group.B = 1, group.H = in.H / std::max<std::size_t>(1, in.G);
  return std::min(rows_at_a_time(group, kMostScores), in.rows.size());
}

/// Some heads of a batch item: (B, heads, ...) -> (1, count, ...), without a copy.
Bounded heads_of(const Bounded& x, std::size_t b, std::size_t first, std::size_t count) {
  const auto of = [&](const Tensor& tensor) {
    return sliced(sliced(tensor, 0, b, 1), 1, first, count);
  };
  return {of(x.value), of(x.error), x.is_stored};
}

Bounded with_sizes(Bounded x) {
  x.sizes = sizes_of(x);
  return x;
}

Bounded part_of_rows(const Bounded& x, const RowRange& rows) {
  std::vector<std::size_t> indices(rows.count);
  std::iota(indices.begin(), indices.end(), rows.first);
  return {take_rows(x.value, indices), take_rows(x.error, indices), x.is_stored};
}

/// Keys or values of a problem with S keys.
Bounded with_keys(const Bounded& x, const KeySpan& keys, std::size_t S) {
  if (keys.count == S) return x;
  const auto of = [&](const Tensor& tensor) { return sliced(tensor, 2, keys.first, keys.count); };
  Bounded part{of(x.value), of(x.error), x.is_stored, x.sizes};
  if (part.sizes) part.sizes->magnitudes = of(part.sizes->magnitudes);
  return part;
}

/// Copies part (1, heads, rows, ...) to whole (B, H, R, ...), from head `head` of all items and row
/// `first` on.
void put(const Tensor& part, std::size_t head, std::size_t first, Tensor& whole) {
  const std::size_t R = whole.shape()[2], rows = part.shape()[2];
  const std::size_t bytes = part.bytes() / (part.shape()[1] * rows);  // of a row
  for (std::size_t i = 0; i < part.shape()[1]; ++i)
    std::copy_n(part.raw() + i * rows * bytes, rows * bytes,
                whole.mutable_raw() + ((head + i) * R + first) * bytes);
}

/// An output of each head and query, in parts. Queries, keys, values and gates are computed once.
Bounded in_parts(Output output, const Inputs& in, const ErrorOps& ops, Formula<ErrorOps>& whole,
                 const Precision& precision) {
  const Bounded queries = whole.at(Output::queries), keys = whole.at(Output::present_K);
  std::optional<Bounded> values, gates;
  if (output == Output::head_context) {
    values = whole.at(Output::present_V);
    if (in[Input::gate] || in[Input::W_gate]) gates = whole.at(Output::gates);
  }
  // Masks of all queries would be copied for each part.
  const auto has_rows = [&](Input input) {
    return in[input] && in[input]->shape()[2] != 1 && in[input]->shape()[3] != 1;
  };
  const bool needs_all = row_of(output).axes.contains(Axis::S) || has_rows(Input::mask) ||
                         has_rows(Input::bias) || has_rows(Input::dropout_mask);
  const std::size_t rows = in.rows.size(), step = queries_of_part(in), heads = in.H / in.G;
  const std::size_t parts = (rows + step - 1) / step;
  std::vector<InputErrors> known(in.B * in.G);
  for (const Input input : kBiasInputs)
    if (in[input] && is_added(input, *in[input]))
      for (InputErrors& errors : known)
        errors.of(input, [error = ops.given(input).error] { return error; });
  Shape shape = full_shape(output, in);
  Bounded all{Tensor(DType::f64, shape), Tensor(DType::f64, shape)};
  all.value.mutable_raw(), all.error.mutable_raw();  // not shared from here on
  const auto compute = [&](std::size_t pair, const auto& in_turn) {
    const std::size_t b = pair / in.G, g = pair % in.G;
    const Inputs group = group_of(in, b, g);
    const Bounded its_queries = heads_of(queries, b, g * heads, heads);
    const Bounded its_keys = with_sizes(heads_of(keys, b, g, 1));
    std::optional<Bounded> its_values, its_gates;
    if (values) its_values = with_sizes(heads_of(*values, b, g, 1));
    if (gates) its_gates = heads_of(*gates, b, g * heads, heads);
    in_turn(parts, [&](std::size_t i) {
      const RowRange range{i * step, std::min(step, rows - i * step)};
      const Inputs with_all_keys = part_of(group, {range});
      const KeySpan seen = needs_all ? KeySpan{0, in.S} : seen_keys(with_all_keys);
      const Inputs part = with_keys(with_all_keys, seen);
      ErrorOps of_part(part, precision, &known[pair], in.S);
      Formula<ErrorOps> formula(of_part, part);
      formula.provide(Output::queries, part_of_rows(its_queries, range));
      formula.provide(Output::present_K, with_keys(its_keys, seen, in.S));
      if (its_values) formula.provide(Output::present_V, with_keys(*its_values, seen, in.S));
      if (its_gates) formula.provide(Output::gates, part_of_rows(*its_gates, range));
      const Bounded& found = formula.at(output);
      put(found.value, pair * heads, range.first, all.value);
      put(found.error, pair * heads, range.first, all.error);
    });
  };
  keep_freed_memory();
  const auto in_parallel = [](std::size_t count, const auto& f) {
    run_in_parallel(count, kMostThreads, f);
  };
  const auto one_by_one = [](std::size_t count, const auto& f) {
    for (std::size_t i = 0; i < count; ++i) f(i);
  };
  if (known.size() < parts)
    one_by_one(known.size(), [&](std::size_t pair) { compute(pair, in_parallel); });
  else
    in_parallel(known.size(), [&](std::size_t pair) { compute(pair, one_by_one); });
  return all;
}

}  // namespace

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

Precision with_weights_in(Precision precision, std::string_view type) {
  precision.name += " with weights in " + std::string(type);
  const auto set = [&](int digits, int least) {
    precision.weight = std::ldexp(1.0, -digits), precision.least_weight = std::ldexp(1.0, -least);
  };
  if (type == "f16") set(11, 24);
  if (type == "bf16") set(8, 126);
  if (type == "e4m3") set(4, 9);
  if (type == "e5m2") set(3, 16);
  return precision;
}

std::string missing_bound_reason(const Request& request, const Inputs& in) {
  if (is_of_gradients(request)) return missing_gradient_bound_reason(in);
  const Options& options = in.options;
  const Output* output = std::get_if<Output>(&request);
  if (!output || !row_of(*output).has_error_bound) return "for " + std::string(name_of(request));
  if (*output == Output::values || *output == Output::present_V || *output == Output::gates)
    return "";
  if (row_of(*output).phase == Phase::projection) return "";
  if (options.score != Score::dot) return "for score functions other than dot";
  if (row_of(*output).phase == Phase::scores || *output == Output::masked_scores) return "";
  if (options.normaliser != Normaliser::softmax) return "for normalisers other than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  return "";
}

Precision precision_of(const Request& request, const Options& options, Precision precision) {
  const Output* output = std::get_if<Output>(&request);
  if (options.bf16_products && output != nullptr && needs_scores(same_numbers_as(*output)))
    precision.name += " with products in bf16";
  return precision;
}

bool is_expected_in_parts(Output output, const Inputs& in) {
  const Output computed = same_numbers_as(output);
  return needs_scores(computed) && in.G > 0 && in.B * in.G * in.rows.size() > queries_of_part(in);
}

std::size_t bytes_of_expected(const Request& request, const Inputs& in) {
  const Output* output = std::get_if<Output>(&request);
  // About seven matrices of the scores that are computed at a time.
  if (output == nullptr || !is_expected_in_parts(*output, in))
    return saturating_product({7, sizeof(double), in.B, in.H, in.rows.size(), in.S});
  const std::size_t threads = std::min(thread_count(), kMostThreads);
  return saturating_product({7, sizeof(double), threads, in.H / in.G, queries_of_part(in), in.S});
}

Expected expected(Output output, const Inputs& in, const Precision& precision, InputErrors* known) {
  const Output computed = same_numbers_as(output);
  ErrorOps ops(in, precision, known);
  Formula<ErrorOps> formula(ops, in);
  Bounded bounded;
  if (is_expected_in_parts(output, in)) {
    const bool is_projected = computed == Output::output;
    bounded = in_parts(is_projected ? Output::head_context : computed, in, ops, formula, precision);
    if (is_projected) {
      formula.provide(Output::head_context, std::move(bounded));
      bounded = formula.at(computed);
    }
  } else {
    bounded = formula.at(computed);
  }
  const Precision of_result = precision.has_wide_results ? *precision_named("f32") : precision;
  const ErrorOps storing(in, of_result);
  Expected found{bounded.value, storing.of_result(storing.stored(bounded).error, bounded.value)};
  // The reference has the rounding errors of f64, too.
  if (precision.stored == DType::f64) found.error = bounds::times(std::move(found.error), 2);
  return {to_user_layout(output, found.value, in), to_user_layout(output, found.error, in)};
}

Tensor expected_error(const Request& request, const Inputs& in, const Precision& precision,
                      InputErrors* known) {
  if (is_of_gradients(request)) return expected_gradients({request}, in, precision)[0].error;
  return expected(std::get<Output>(request), in, precision, known).error;
}

}  // namespace attn
