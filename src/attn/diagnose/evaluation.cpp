#include "attn/diagnose/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "attn/attention/attention.h"
#include "attn/attention/gemm.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/plan.h"
#include "attn/base/error.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hidden_keys.h"
#include "attn/diagnose/row_changes.h"
#include "attn/problem/layout.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

/// Outputs with all axes, (B, H, rows, C).
class FullOutputs {
 public:
  FullOutputs(const Inputs& in, const std::vector<Request>& requests)
      : in_(in), plan_(plan(in, requests)), results_(attend(in, requests)) {}

  Tensor matrices(const Request& output) const {
    return matrices(output, results_.at(name_of(output)));
  }
  Tensor matrices(const Request& output, const Tensor& tensor) const {
    for (const PlannedOutput& planned : plan_.outputs)
      if (planned.request == output)
        return taken(tensor, matrices_of(tensor.shape(), planned.axes, in_.H));
    return tensor;
  }

 private:
  const Inputs& in_;
  Plan plan_;
  TensorMap results_;
};

/// The largest term of each row's softmax, (B, H, rows).
Tensor largest_of_rows(const FullOutputs& outputs, const Inputs& in) {
  Tensor largest = outputs.matrices(Output::row_max);
  for (double& score : largest.mutable_data<double>()) score /= in.options.temperature;
  return largest;
}

/// A factor for each row of the weights, (B, H, rows).
Tensor row_factors(const Variant& variant, const Inputs& in, const FullOutputs& outputs,
                   const std::vector<std::size_t>& rows) {
  Tensor factors = outputs.matrices(Output::logsumexp);
  const auto out = factors.mutable_data<double>();
  if (variant.row_change == RowChange::times_sum) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::exp(out[i] +
                        (variant.of_heads ? variant.of_heads->data<double>()[i / rows.size()] : 0));
    return factors;
  }
  if (variant.row_change == RowChange::sink_not_shifted) {
    const Tensor largest = largest_of_rows(outputs, in);
    const Tensor sinks = cast(*variant.find(Input::sinks), DType::f64);
    Variant keys_only = variant;
    keys_only.row_change = RowChange::none;
    keys_only.erase({Input::sinks});
    const Tensor logs = evaluate(keys_only, Output::logsumexp, rows, nullptr).values;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double max = largest.data<double>()[i];
      const double sink = sinks.data<double>()[i / rows.size() % in.H];
      const double of_keys = std::exp(logs.data<double>()[i] - max);
      out[i] = (of_keys + std::exp(sink - max)) / (of_keys + std::exp(sink));
    }
    return factors;
  }
  Tensor others =
      variant.row_change == RowChange::times_shifted_sum
          ? largest_of_rows(outputs, in)
          : evaluate(without_masks(variant, in), Output::logsumexp, rows, nullptr).values;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::exp(out[i] - others.data<double>()[i]);
  return factors;
}

/// Multiplies the rows of matrices (B, H, rows, C); rows without visible keys stay 0.
void multiply_rows(Tensor& matrices, const Tensor& factors) {
  const auto out = matrices.mutable_data<double>();
  const auto f = factors.data<double>();
  const std::size_t columns = f.empty() ? 1 : out.size() / f.size();
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i] != 0) out[i] *= f[i / columns];
}

/// Adds the weight of the sink, times the value of key 0, to the context (B, H, rows, Dv).
void add_value_of_key_0(Evaluated& context, const Variant& variant, const Inputs& in,
                        const Tensor& logsumexp, const Precision* precision) {
  const Tensor* past = variant.find(Input::past_V);
  const Tensor values = cast(past != nullptr ? *past : *variant.find(Input::V), DType::f64);
  const Tensor sinks = cast(*variant.find(Input::sinks), DType::f64);
  const std::size_t N = values.shape()[2], Dv = values.shape()[3], R = context.values.shape()[2];
  const auto out = context.values.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / Dv, head = row / R;  // head: of all batch items
    const std::size_t b = head / in.H, h = head % in.H, g = h / (in.H / in.G);
    const double weight = std::exp(sinks.data<double>()[h] - logsumexp.data<double>()[row]);
    const double term = weight * values.data<double>()[((b * in.G + g) * N) * Dv + i % Dv];
    out[i] += term;
    if (context.bounds)  // both factors and the sum are rounded
      context.bounds->mutable_data<double>()[i] +=
          2 * (precision->result + precision->factor) * std::abs(term);
  }
}

/// Replaces masked scores (B, H, rows, S) by the weights of an online softmax, which counts sinks
/// first or last.
void replace_by_weights(Tensor& scores, const Variant& variant) {
  const auto all = scores.mutable_data<double>();
  const Shape& shape = scores.shape();
  const std::size_t S = shape.back();
  const Tensor* given = variant.find(Input::sinks);
  const Tensor sinks = given != nullptr ? cast(*given, DType::f64) : Tensor();
  for (std::size_t from = 0; from < all.size(); from += S) {
    const auto row = all.subspan(from, S);
    const double sink =
        given != nullptr ? sinks.data<double>()[from / (shape[2] * S) % shape[1]] : -HUGE_VAL;
    const bool starts_at_sink = variant.starts_at_sink && std::isfinite(sink);
    double largest = starts_at_sink ? sink : -HUGE_VAL, total = starts_at_sink ? 1 : 0,
           rescaled = total;
    std::vector<double> of_blocks;
    for (std::size_t j = 0; j < S; ++j) {
      if (j % variant.block == 0) {
        const auto keys = row.subspan(j, std::min(variant.block, S - j));
        const double next = std::max(largest, *std::max_element(keys.begin(), keys.end()));
        if (rescaled > 0) rescaled *= std::exp(largest - next);
        largest = next;
        of_blocks.push_back(largest);
      }
      row[j] = row[j] == -HUGE_VAL ? 0 : std::exp(row[j] - largest);
      total += row[j], rescaled += row[j];
    }
    if (variant.row_change == RowChange::divisor_not_rescaled)
      for (std::size_t j = 0; j < S; ++j)
        if (row[j] > 0) row[j] *= std::exp(of_blocks[j / variant.block] - largest);
    const double divisor =
        (variant.row_change == RowChange::context_not_rescaled ? rescaled : total) +
        (starts_at_sink ? 0 : std::exp(sink - largest));
    if (divisor > 0)
      for (double& weight : row) weight /= divisor;
  }
}

/// The sums of the weights (B, H, rows, S), at least 1.
Tensor sums_of_rows(const Tensor& weights) {
  const Shape& shape = weights.shape();
  Tensor sums(DType::f64, {shape[0], shape[1], shape[2]});
  const auto all = weights.data<double>();
  std::size_t from = 0;
  for (double& sum : sums.mutable_data<double>()) {
    for (const double weight : all.subspan(from, shape[3])) sum += weight;
    sum = std::max(1.0, sum);
    from += shape[3];
  }
  return sums;
}

/// x (B, H, rows, Dv) W (H * Dv, Mo) + b: (B, 1, rows, Mo).
Tensor projected(const Tensor& x, const Tensor& W, const Tensor* b) {
  const std::size_t B = x.shape()[0], H = x.shape()[1], R = x.shape()[2], D = x.shape()[3];
  const std::size_t Mo = W.shape()[1];
  Tensor result(DType::f64, {B, 1, R, Mo});
  const auto in = x.data<double>(), w = W.data<double>();
  const auto out = result.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = b != nullptr ? b->data<double>()[i % Mo] : 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t item = i / (H * R * D), h = i / (R * D) % H, r = i / D % R;
    const double* row = &w[(h * D + i % D) * Mo];
    double* to = &out[(item * R + r) * Mo];
    for (std::size_t c = 0; c < Mo; ++c) to[c] += in[i] * row[c];
  }
  return result;
}

/// The contexts (B, H, rows, Dv) of the variant times its W_O, plus b_O.
Evaluated projected(const Evaluated& contexts, const Variant& variant) {
  const Tensor W = cast(*variant.find(Input::W_O), DType::f64);
  const Tensor* b = variant.find(Input::b_O);
  const Tensor bias = b != nullptr ? cast(*b, DType::f64) : Tensor();
  Evaluated result{projected(contexts.values, W, b != nullptr ? &bias : nullptr), std::nullopt};
  if (!contexts.bounds) return result;
  Tensor magnitudes = W;
  for (double& x : magnitudes.mutable_data<double>()) x = std::abs(x);
  result.bounds = projected(*contexts.bounds, magnitudes, nullptr);
  return result;
}

/// The output of a variant whose heads are joined in another way. The contexts that it needs, of
/// more rows than `rows`, are computed for as many rows at a time.
Evaluated evaluate_joined(const Variant& given, Output output, const std::vector<std::size_t>& rows,
                          const Precision* precision, InputErrors* known) {
  if (output != Output::output || given.has(Input::W_UV))
    fail_usage("a change without effect on this output");
  Variant variant = given;
  variant.join = Join::transposed;
  const Shape& of_queries = variant.find(Input::Q)->shape();
  const std::size_t B = of_queries[0], H = of_queries[1], L = of_queries[2];
  struct Source {
    std::size_t head, row;
  };
  const auto source_of = [&](std::size_t h, std::size_t row) -> Source {
    if (given.join == Join::viewed) return {(row * H + h) / L, (row * H + h) % L};
    return {(h * L + row) % H, (h * L + row) / H};
  };
  std::vector<std::size_t> needed;
  for (const std::size_t row : rows)
    for (std::size_t h = 0; h < H; ++h) needed.push_back(source_of(h, row).row);
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  Tensor values, bounds;
  bool has_bounds = false;
  for (std::size_t first = 0; first < needed.size(); first += rows.size()) {
    const auto from = needed.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<std::size_t> some(
        from, from + static_cast<std::ptrdiff_t>(std::min(rows.size(), needed.size() - first)));
    const Evaluated part = evaluate(variant, Output::head_context, some, precision, known);
    put_part(part.values, 2, first, needed.size(), values);
    has_bounds = part.bounds.has_value();
    if (has_bounds) put_part(*part.bounds, 2, first, needed.size(), bounds);
  }
  const auto joined = [&](const Tensor& contexts) {
    const std::size_t Dv = contexts.shape()[3];
    return rows_from(contexts, {B, H, rows.size(), Dv}, [&](std::size_t i) {
      const std::size_t b = i / rows.size() / H, h = i / rows.size() % H;
      const Source source = source_of(h, rows[i % rows.size()]);
      const auto at = std::lower_bound(needed.begin(), needed.end(), source.row) - needed.begin();
      return (b * H + source.head) * needed.size() + static_cast<std::size_t>(at);
    });
  };
  return projected({joined(values), has_bounds ? std::optional(joined(bounds)) : std::nullopt},
                   variant);
}

}  // namespace

Inputs inputs_of_rows(const Variant& variant, const std::vector<std::size_t>& rows) {
  Options options = variant.options;
  options.compute = Compute::f64;
  options.path = Path::automatic;
  options.rows.clear();
  for (const std::size_t row : rows) options.rows.push_back(static_cast<std::int64_t>(row));
  return make_inputs({variant.tensors, options});
}

Evaluated evaluate(const Variant& given, Output output, const std::vector<std::size_t>& rows,
                   const Precision* precision, InputErrors* known) {
  if (given.join != Join::transposed) return evaluate_joined(given, output, rows, precision, known);
  Variant variant = given;
  if (given.row_change != RowChange::none) report_natural_logsumexp(variant.options);
  const Inputs in = inputs_of_rows(variant, rows);
  const RowChangeKind kind = kind_of(variant.row_change);
  const bool changes = kind != RowChangeKind::none && kind != RowChangeKind::logsumexp;
  const bool projects = changes && output == Output::output;
  const Output wanted = projects ? Output::head_context : same_numbers_as(output);
  std::vector<Request> requests = {wanted};
  if (variant.row_change != RowChange::none) {
    if (wanted != Output::logsumexp) requests.emplace_back(Output::logsumexp);
    requests.emplace_back(Output::row_max);
  }
  const bool counts_hidden = kind == RowChangeKind::hidden_keys;
  if (kind == RowChangeKind::online) {
    requests.emplace_back(Output::masked_scores);
    requests.emplace_back(Output::present_V);
  }
  const bool is_of_weights = wanted == Output::head_context || wanted == Output::weights ||
                             wanted == Output::dropped_weights;
  const bool is_changed = output == Output::logsumexp ? !changes
                          : counts_hidden             ? changes
                                                      : changes && is_of_weights;
  const bool is_expanded = projects && variant.has(Input::W_UV);
  if (variant.row_change != RowChange::none && (!is_changed || is_expanded))
    fail_usage("a change without effect on this output");
  check_outputs(requests, {variant.tensors, in.options});
  if (counts_hidden && !projects)
    return evaluate_with_hidden(variant, wanted, rows, precision, known);
  const FullOutputs outputs(in, requests);
  Evaluated result{outputs.matrices(wanted), std::nullopt};
  if (precision != nullptr && !counts_hidden && missing_bound_reason(wanted, in).empty())
    result.bounds = outputs.matrices(wanted, expected_error(wanted, in, *precision, known));
  if (counts_hidden) {
    result = evaluate_with_hidden(variant, wanted, rows, precision, known);
  } else if (kind == RowChangeKind::value_of_sink) {
    if (wanted != Output::head_context) fail_usage("a change without effect on this output");
    add_value_of_key_0(result, variant, in, outputs.matrices(Output::logsumexp), precision);
  } else if (kind == RowChangeKind::online) {
    Tensor weights = outputs.matrices(Output::masked_scores);
    replace_by_weights(weights, variant);
    if (result.bounds) multiply_rows(*result.bounds, sums_of_rows(weights));
    result.values = wanted == Output::head_context
                        ? matmul(weights, outputs.matrices(Output::present_V), Second::plain, "")
                        : weights;
  } else if (changes) {
    const Tensor factors = row_factors(variant, in, outputs, rows);
    multiply_rows(result.values, factors);
    if (result.bounds) multiply_rows(*result.bounds, factors);
  } else if (variant.row_change == RowChange::maximum) {
    result.values = largest_of_rows(outputs, in);
  } else if (variant.row_change == RowChange::minus_maximum) {
    const Tensor largest = largest_of_rows(outputs, in);
    const auto out = result.values.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= largest.data<double>()[i];
  }
  return projects ? projected(result, variant) : result;
}

Evaluated evaluate_given(const Variant& given, const Request& output, const Precision* precision) {
  Options options = given.options;
  options.compute = Compute::f64;
  const Inputs in = make_inputs({given.tensors, options});
  check_outputs({output}, in);
  const FullOutputs outputs(in, {output});
  Evaluated result{outputs.matrices(output), std::nullopt};
  if (precision != nullptr && missing_bound_reason(output, in).empty())
    result.bounds = outputs.matrices(output, expected_error(output, in, *precision));
  return result;
}

}  // namespace attn
