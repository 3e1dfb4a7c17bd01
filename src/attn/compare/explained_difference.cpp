#include "attn/compare/explained_difference.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/bounds/gradient_error.h"
#include "attn/compare/compare_axes.h"
#include "attn/compare/compare_hints.h"
#include "attn/compare/job_variant.h"
#include "attn/run/execution.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

/// Whether Q has four axes in this order.
bool has_layout(const Job& job, Layout layout) {
  const Tensor* Q = find(job.tensors, Input::Q);
  return Q != nullptr && Q->rank() == 4 && job.options.layout == layout;
}

constexpr std::size_t kMaxExplainedScores = std::size_t{1} << 22;   ///< limits the time
constexpr std::size_t kMaxExplainedNumbers = std::size_t{1} << 19;  ///< of queries, keys or values
constexpr std::size_t kFewestQueries = 8, kFewestGroups = 3;

/// `count` of `all` indices: the first, the last, and others at equal distances. Empty if these are
/// all.
std::vector<std::size_t> sampled(std::size_t all, std::size_t count) {
  std::vector<std::size_t> indices;
  for (std::size_t k = 0; count < all && k < count; ++k)
    indices.push_back(count == 1 ? 0 : k * (all - 1) / (count - 1));
  return indices;
}

/// The rows of the queries to compute for a large problem; empty: compute all queries.
std::vector<std::size_t> sampled_queries(const Inputs& in) {
  const std::size_t of_query = std::max<std::size_t>(1, saturating_product({in.B, in.H, in.S}));
  return sampled(in.rows.size(), std::max(kFewestQueries, kMaxExplainedScores / of_query));
}

/// Reduces a large job with queries, keys and values of four axes, and its result `a`, to some
/// heads. Returns ", judging by 4 of 32 heads"; "" if nothing is changed, because all are few, or
/// because other inputs or options depend on heads.
std::string keep_some_heads(Job& job, Tensor& a) {
  const auto has_no_other_heads = [](const auto& named) {
    const auto input = input_named(named.first);
    return input == Input::Q || input == Input::K || input == Input::V ||
           input == Input::key_lengths || input == Input::query_lengths;
  };
  const Options& options = job.options;
  if (!std::all_of(job.tensors.begin(), job.tensors.end(), has_no_other_heads) || options.alibi ||
      !options.mask_rule.empty() || !options.bias_rule.empty() || options.heads > 0 ||
      options.kv_heads > 0 || options.qk_norm_axis == QkNormAxis::all)
    return "";
  const Tensor *Q = find(job.tensors, Input::Q), *K = find(job.tensors, Input::K),
               *V = find(job.tensors, Input::V);
  for (const Tensor* tensor : {Q, K, V, static_cast<const Tensor*>(&a)})
    if (tensor == nullptr || tensor->rank() != 4) return "";
  const std::size_t heads = options.layout == Layout::bhld ? 1 : 2, rows = 3 - heads;
  const std::size_t H = Q->shape()[heads], G = K->shape()[heads];
  if (G == 0 || H % G != 0 || V->shape()[heads] != G || a.shape()[heads] != H) return "";
  const std::size_t longest = std::max(Q->shape()[rows] * (H / G), K->shape()[rows]);
  const std::size_t of_group = std::max<std::size_t>(
      1, saturating_product({Q->shape()[0], longest, std::max(K->shape()[3], V->shape()[3])}));
  const auto groups = sampled(G, std::max(kFewestGroups, kMaxExplainedNumbers / of_group));
  if (groups.empty()) return "";
  std::vector<std::size_t> of_queries;
  for (const std::size_t g : groups)
    for (std::size_t h = g * (H / G); h < (g + 1) * (H / G); ++h) of_queries.push_back(h);
  a = take_along(a, heads, of_queries);
  const auto keep = [&](Input input, const Tensor& whole, const std::vector<std::size_t>& of) {
    job.tensors.set(std::string(name_of(input)), take_along(whole, heads, of));
  };
  keep(Input::Q, *Q, of_queries), keep(Input::K, *K, groups), keep(Input::V, *V, groups);
  return ", judging by " + std::to_string(of_queries.size()) + " of " + std::to_string(H) +
         " heads";
}

/// A result of a kernel, and what is known about it.
struct Wrong {
  const Compared& compared;
  Request output;
  const Precision* precision;  ///< null with a tolerance
};

/// How the result agrees with `job`: "", ", judging by 4 of 32 heads and 8 of 1024 queries", " if
/// its axes 1 and 2 are swapped". nullopt if it does not. Errors: as prepare_job().
std::optional<std::string> agreement(const Wrong& wrong, Job job) {
  job.outputs = {wrong.output};
  if (is_of_gradients(wrong.output)) job.options.path = Path::automatic;  // keeps no scores
  Compared compared = wrong.compared;
  std::string where =
      wrong.output == Request(Output::context) ? keep_some_heads(job, compared.a) : "";
  PreparedJob prepared = prepare_job(job);
  const PlannedOutput planned = prepared.plan.outputs[0];
  const auto queries = sampled_queries(prepared.inputs);
  if (!queries.empty()) {
    if (is_of_gradients(wrong.output)) return std::nullopt;  // sums over all queries
    const std::optional<std::size_t> axis = planned.query_axis();
    if (!axis || compared.a.shape() != planned.shape) return std::nullopt;
    compared.a = take_along(compared.a, *axis, queries);
    where += (where.empty() ? ", judging by " : " and ") + std::to_string(queries.size()) + " of " +
             std::to_string(prepared.inputs.rows.size()) + " queries";
    job.options.rows.clear();
    for (const std::size_t query : queries)
      job.options.rows.push_back(static_cast<std::int64_t>(prepared.inputs.rows[query]));
    prepared = prepare_job(job);
  }
  compared.b =
      execute({job, prepared, nullptr, job.outputs}).result.outputs.at(name_of(wrong.output));
  if (wrong.precision != nullptr)
    compared.bounds = expected_error(wrong.output, prepared.inputs, *wrong.precision);
  if (compared.a.shape() == compared.b.shape() &&
      compare(compared.a, compared.b, compared.tolerance,
              compared.bounds ? &*compared.bounds : nullptr)
          .same())
    return where;
  if (!queries.empty() || compared.a.size() != compared.b.size()) return std::nullopt;
  const std::string arranged = agreeing_arrangement(compared, planned.axes);
  return arranged.empty() ? std::nullopt : std::optional(" " + arranged + where);
}

/// The hint that A agrees with the job in the other layout of 4-D inputs; "" if it does not.
std::string other_layout(const Wrong& wrong, const Job& job) {
  for (const Layout layout : {Layout::bhld, Layout::blhd}) {
    if (!has_layout(job, layout)) continue;
    Job other = job;
    other.options.layout = layout == Layout::bhld ? Layout::blhd : Layout::bhld;
    const std::string name = layout == Layout::bhld ? "blhd" : "bhld";
    try {
      if (const auto how = agreement(wrong, std::move(other)))
        return "A agrees with the job with layout " + name + " (--layout " + name + ")" + *how;
    } catch (const Error&) {  // shapes that do not fit in this layout
    }
  }
  return "";
}

/// Whether a hint explains the whole difference.
bool is_explained(const TensorPair& pair) {
  return std::any_of(pair.hints.begin(), pair.hints.end(),
                     [](const Hint& hint) { return hint.explains_all; });
}

/// Sets the diagnosis of a pair that does not pass.
void search_mistake(const Variant& job, const Evidence& evidence, SearchLimits& limits,
                    TensorPair& pair) {
  const auto start = std::chrono::steady_clock::now();
  const bool is_gradient = is_of_gradients(evidence.output);
  SearchLimits its_limits = limits;
  if (limits.seconds && is_gradient) its_limits.seconds = kSearchSeconds;  // for each
  try {
    pair.diagnosis = diagnose(job, evidence, its_limits);
  } catch (const std::bad_alloc&) {
    pair.hints.push_back({"the mistake was not searched for, because this takes too much memory"});
    return;
  }
  if (limits.seconds && !is_gradient) {  // for all outputs
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    limits.seconds = std::max(0.0, *limits.seconds - passed.count());
  }
  if (!pair.diagnosis->findings.empty() || !pair.diagnosis->arithmetic.empty()) pair.hints.clear();
}

/// Whether the pair passes, or a hint explains the difference. Tries the other layout, and makes it
/// the hint if A agrees with it.
bool is_explained_by_layout(const Wrong& wrong, const Job& job, TensorPair& pair) {
  if (pair.passed() || is_explained(pair)) return true;
  const std::string hint = other_layout(wrong, job);
  if (!hint.empty()) pair.hints = {{hint, true}};
  return !hint.empty() || !pair.found.same_shape;
}

}  // namespace

std::optional<Hint> sum_over_groups(const Compared& compared, const PlannedOutput& planned,
                                    const Inputs& in, const Precision* precision) {
  Shape of_heads = planned.shape, split = planned.shape, summed;
  for (std::size_t k = 0; k < planned.axes.size(); ++k) {
    const Axis axis = planned.axes[k];
    if (axis != Axis::G && axis != Axis::GD && axis != Axis::GDv) continue;
    const std::size_t group = in.H / in.G, columns = planned.shape[k] / in.G;
    of_heads[k] *= group;
    split[k] = in.G;
    split.insert(split.begin() + k + 1, group);
    split.insert(split.begin() + k + 2, columns);
    summed = split, summed[k + 1] = 1;
    break;
  }
  if (summed.empty() || in.G == in.H || compared.a.shape() != of_heads) return std::nullopt;
  const std::string groups =
      "each group of " + std::to_string(in.H / in.G) + " (H / G) query heads";
  const Tensor sums =
      sum_to(cast(compared.a, DType::f64).reshaped(split), summed).reshaped(planned.shape);
  std::optional<Tensor> bounds;
  if (precision != nullptr) bounds = expected_error(planned.request, in, *precision);
  if (compare(sums, compared.b, compared.tolerance, bounds ? &*bounds : nullptr).same())
    return Hint{"A agrees with B if it is summed over " + groups, true};
  return Hint{"A has a gradient for each query head; that of a key/value head is the sum over " +
              groups};
}

void explain_difference(const Job& job, const PreparedJob& prepared, const PlannedOutput& planned,
                        const Precision& precision, bool bounded, SearchLimits& limits,
                        TensorPair& pair) {
  const Request& output = planned.request;
  if (is_explained_by_layout({pair.compared, output, bounded ? &precision : nullptr}, job, pair))
    return;
  if (pair.found.same()) return;  // a gate fails, but the errors are within their bounds
  const Tensor reference = cast(pair.compared.b, DType::f64);
  std::optional<Tensor> bounds = pair.compared.bounds;
  Tolerance tolerance = pair.compared.tolerance;
  if (!pair.gates.empty() && !bounds && tolerance_text(tolerance).empty()) {
    tolerance = default_tolerance(pair.compared.a.dtype(), pair.compared.a.dtype());
    if (missing_bound_reason(output, prepared.inputs).empty())
      bounds = expected_error(output, prepared.inputs, precision);
  }
  const bool is_of_keys = planned.axes.contains(Axis::GD) || planned.axes.contains(Axis::GDv);
  const std::size_t heads = is_of_keys ? prepared.inputs.G : prepared.inputs.H;
  const Evidence evidence{output,
                          pair.compared.a,
                          reference,
                          bounds ? &*bounds : nullptr,
                          tolerance,
                          bounds ? &precision : nullptr,
                          matrices_of(pair.compared.a.shape(), planned.axes, heads)};
  search_mistake(variant_of(job), evidence, limits, pair);
}

void explain_difference(const PartwiseJob& parts, PartwiseJob::Found& found, const Job& job,
                        const PlannedOutput& planned, const Precision& precision,
                        SearchLimits& limits) {
  TensorPair& pair = found.pair;
  if (is_explained_by_layout({pair.compared, planned.request, &precision}, job, pair)) return;
  const PartwiseJob::Sample sample = parts.sample(pair.compared, planned, precision, found.errors);
  stop_keeping_freed_memory();
  const Excerpt of_rows;
  const auto evidence_of = [&](const Tensor& result, const Expected& expected,
                               const Excerpt& excerpt) {
    return Evidence{planned.request,
                    result,
                    expected.value,
                    &expected.error,
                    pair.compared.tolerance,
                    &precision,
                    contiguous(result.shape()),
                    &excerpt};
  };
  const Evidence some_rows = evidence_of(found.result, found.expected, of_rows);
  const Excerpt of_heads{&sample.heads, &some_rows, &found.pattern};
  const Evidence evidence = evidence_of(sample.result, sample.expected, of_heads);
  search_mistake(parts.variant(), evidence, limits, pair);
}

}  // namespace attn
