#include "attn/compare/compare_reference.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/attention/attention.h"
#include "attn/attention/derivatives.h"
#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/bounds/expected_error.h"
#include "attn/bounds/gradient_error.h"
#include "attn/compare/baseline.h"
#include "attn/compare/compare_axes.h"
#include "attn/compare/compare_hints.h"
#include "attn/compare/job_variant.h"
#include "attn/compare/partwise_job.h"
#include "attn/diagnose/backward_pass.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/job/job.h"
#include "attn/metrics/comparison.h"
#include "attn/model/model_job.h"
#include "attn/problem/threads.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// A tensor of A and the name of the output that it is compared with.
struct MatchedOutput {
  std::string name;
  Tensor tensor;
};

/// Whether a tensor is an input of the job, or has its name and shape: q, or query, for Q.
bool is_input(const std::string& name, const Tensor& tensor, const Job& job) {
  if (input_named(name)) return true;
  const std::vector<std::string> similar = similar_names(name, input_names(), NameKind::input);
  return std::any_of(similar.begin(), similar.end(), [&](const std::string& one) {
    const Tensor* const input = job.tensors.find(one);
    return input != nullptr && input->shape() == tensor.shape();
  });
}

/// Whether a tensor is a gradient, which is never taken as the usual output of the job.
bool is_called_gradient(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("grad") != std::string::npos;
}

/// What a tensor of A is, by its own name or that of kernels.
std::optional<Request> known_request(const std::string& name) {
  const std::optional<Request> request = request_named(name);
  const bool is_logsumexp = our_name(name, NameKind::output) == name_of(Output::logsumexp);
  return request || !is_logsumexp ? request : std::optional<Request>(Output::logsumexp);
}

/// Ignores tensors that are inputs. Adds the names of tensors without a matching
/// output to `unmatched`. A name that --as gives is accepted as it is.
std::vector<MatchedOutput> match_outputs(const TensorMap& given, const ReferenceOptions& typed,
                                         const Job& job, std::vector<std::string>& unmatched) {
  const std::string default_output(name_of(usual_output(job)));
  std::vector<MatchedOutput> matches;
  for (const auto& [name, tensor] : given) {
    const bool is_given =
        std::any_of(typed.as.begin(), typed.as.end(), [&name = name](const std::string& entry) {
          return entry == name || entry.ends_with("=" + name);
        });
    const std::optional<Request> request = known_request(name);
    const std::string known(request ? name_of(*request) : name);  // grad_Q for dq
    const bool is_output = request && !std::holds_alternative<Input>(*request) &&
                           (known == name || !given.contains(known));
    if (is_given || is_output)
      matches.push_back({known, tensor});
    else if (given.size() == 1 && !is_called_gradient(name))
      matches.push_back({default_output, tensor});
    else if (!is_input(name, tensor, job))
      unmatched.push_back(name);
  }
  return matches;
}

/// Makes the matched outputs those of the job, in the same order. Messages about them refer to
/// `where`.
void request_outputs(const std::vector<MatchedOutput>& matches, const std::string& where,
                     Job& job) {
  std::vector<std::string> names;
  JsonArray values;
  for (const MatchedOutput& match : matches) {
    names.push_back(match.name);
    values.push_back(Json{match.name});
  }
  job.document.set({"outputs", Json{std::move(values)}, where, "", true});
  job.outputs = outputs_named(names, job);
}

Precision named(const std::string& word) { return *precision_named(word); }

/// The name of the precision of a dtype.
std::string word_of(DType dtype) {
  return dtype == DType::f32    ? "f32"
         : dtype == DType::f16  ? "f16"
         : dtype == DType::bf16 ? "bf16"
                                : "f64";
}

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// The dtype of Q, K and V if they have 16 bits.
std::optional<DType> dtype_of_16_bit_inputs(const Job& job) {
  std::optional<DType> found;
  for (const Input input : {Input::V, Input::K, Input::Q}) {
    const Tensor* tensor = find(job.tensors, input);
    if (tensor == nullptr || !is_float(tensor->dtype())) continue;
    if (!is_16_bit(tensor->dtype())) return std::nullopt;
    found = tensor->dtype();
  }
  return found;
}

/// Whether kernels that compute in 16 bits store this output in float32: a number for each query,
/// or the gradient of anything but queries, keys and values.
bool is_kept_in_float32(const Request& output) {
  if (const Gradient* gradient = std::get_if<Gradient>(&output)) {
    constexpr Input kHeads[] = {Input::Q, Input::K, Input::V, Input::past_K, Input::past_V};
    return std::find(std::begin(kHeads), std::end(kHeads), gradient->of) == std::end(kHeads);
  }
  const Output* of_queries = std::get_if<Output>(&output);
  return of_queries != nullptr && row_of(*of_queries).axes == AxisList{Axis::B, Axis::H, Axis::L};
}

/// The precision of each output, as typed, or that of the dtype: f64 for integers. A float32 tensor
/// that a kernel of 16 bits keeps so has the precision of the 16-bit tensors beside it, or of the
/// inputs.
std::vector<Precision> precisions_of(const std::vector<MatchedOutput>& matches,
                                     const std::vector<Request>& outputs,
                                     std::optional<DType> of_inputs,
                                     const ReferenceOptions& typed) {
  std::optional<DType> of_kernel = of_inputs;
  const auto beside = std::find_if(matches.begin(), matches.end(), [](const MatchedOutput& match) {
    return is_16_bit(match.tensor.dtype());
  });
  if (beside != matches.end()) of_kernel = beside->tensor.dtype();
  std::vector<Precision> precisions;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    DType dtype = matches[i].tensor.dtype();
    const bool is_kept = dtype == DType::f32 && of_kernel && is_kept_in_float32(outputs[i]);
    if (is_kept) dtype = *of_kernel;
    Precision precision = named(typed.precision.empty() ? word_of(dtype) : typed.precision);
    precision.has_wide_results = is_kept && typed.precision.empty();
    if (!typed.sums.empty()) precision = with_sums_in(std::move(precision), named(typed.sums));
    if (!typed.weights.empty()) precision = with_weights_in(std::move(precision), typed.weights);
    precisions.push_back(std::move(precision));
  }
  return precisions;
}

/// Errors: usage, if the output has no error bound.
void require_bound(const Request& output, const Options& options) {
  const std::string why = missing_bound_reason(output, options);
  if (!why.empty())
    throw Error(ErrorKind::usage,
                "--reference: no error bound is known " + why + "; set --rtol, --atol or --ulp");
}

/// Whether a result of zeros would be within the bounds of a reference that is not 0.
bool accepts_zeros(const Compared& compared) {
  const Tensor reference = cast(compared.b, DType::f64);
  const auto values = reference.data<double>(), bounds = compared.bounds->data<double>();
  bool is_zero = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    is_zero = is_zero && values[i] == 0;
    if (!(std::abs(values[i]) <= bounds[i])) return false;
  }
  return !is_zero;
}

/// Memory for the error bounds of these outputs, which are computed one after another.
std::size_t bytes_of_errors(const Inputs& in, const std::vector<const PlannedOutput*>& bounded) {
  std::size_t bytes = 0, most = 0;
  std::vector<Request> gradients;
  for (const PlannedOutput* output : bounded) {
    bytes =
        saturating_sum(bytes, saturating_product({sizeof(double), element_count(output->shape)}));
    if (is_of_gradients(output->request))
      gradients.push_back(output->request);
    else
      most = std::max(most, bytes_of_expected(output->request, in));
  }
  if (!gradients.empty()) most = std::max(most, bytes_of_expected_gradients(gradients, in));
  return saturating_sum(bytes, most);
}

/// The gates of each matched tensor. Errors: usage, if a typed gate selects none of them.
std::vector<Gating> gatings_of(const std::vector<MatchedOutput>& matches,
                               const std::vector<Precision>& precisions,
                               const ReferenceOptions& typed, const Job& job) {
  std::vector<GatedTensor> tensors;
  std::vector<Gating> gatings;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const DType stored = precisions[i].stored;
    tensors.push_back({matches[i].name, stored, job.options.softcap > 0});
    gatings.push_back({gates_for(tensors.back(), typed.gates), stored, {}});
  }
  require_selected(typed.gates, tensors);
  return gatings;
}

bool needs_baseline(const Gating& gating) {
  return std::any_of(gating.gates.begin(), gating.gates.end(),
                     [](const Gate* gate) { return gate->names_baseline(); });
}

/// Whether the output is compared with error bounds. Those that decide nothing are computed for
/// hints, if they are known. Errors: usage, if the output needs a bound and has none.
bool has_bound(const Request& output, const Gating& gating, const ReferenceOptions& typed,
               const Options& options) {
  if (typed.has_tolerance) return false;
  const bool is_needed =
      gating.gates.empty() || std::any_of(gating.gates.begin(), gating.gates.end(),
                                          [](const Gate* gate) { return gate->names("bound"); });
  if (is_needed) require_bound(output, options);
  return missing_bound_reason(output, options).empty();
}

/// The outputs and gradients of the job that have this shape.
std::vector<std::string> outputs_of_shape(const Shape& shape, const PreparedJob& prepared,
                                          const Job& job) {
  std::vector<std::string> names;
  std::vector<Request> available = available_outputs(job);
  for (const Request& gradient : available_gradients(job)) available.push_back(gradient);
  for (const PlannedOutput& output : plan(prepared.inputs, available).outputs)
    if (!std::holds_alternative<Input>(output.request) && output.shape == shape)
      names.emplace_back(name_of(output.request));
  return names;
}

/// Suggests --as for a single tensor that does not have the shape of the default output; "" if
/// there is nothing to suggest.
std::string suggested_outputs(const Tensor& tensor, const PreparedJob& prepared, const Job& job) {
  const std::vector<std::string> names = outputs_of_shape(tensor.shape(), prepared, job);
  if (names.empty()) return "";
  return "use --as NAME to name the output that A represents; outputs of its shape: " +
         join(names, ", ");
}

/// Errors: usage, with a line for each tensor that is not an output, and the --as that it needs.
void refuse_unmatched(const std::vector<std::string>& unmatched, const TensorMap& given,
                      const PreparedJob& prepared, const Job& job) {
  ProblemList problems;
  for (const std::string& name : unmatched) {
    const std::vector<std::string> fitting =
        outputs_of_shape(given.at(name).shape(), prepared, job);
    const std::string guess = fitting.size() == 1     ? fitting[0]
                              : problems.keeps_next() ? nearest(name, fitting, NameKind::output)
                                                      : "";
    const std::string as = "use --as " + printable(name) + "=";
    problems.add({.where = {"A"},
                  .subject = printable(name),
                  .message = "is not the name of an output",
                  .hint = !guess.empty() ? as + guess
                          : fitting.empty()
                              ? as + "NAME, or compare a single tensor with A#NAME"
                              : as + "NAME; outputs of its shape: " + join(fitting, ", ")});
  }
  if (!problems.empty()) problems.raise(ErrorKind::usage);
}

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

/// The hint that A has a gradient of keys or values for each query head, which have to be added up
/// in the groups that share a key/value head; "" if A does not have the shape of these.
/// `precision`: null with a tolerance.
std::string sum_over_groups(const Compared& compared, const PlannedOutput& planned,
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
  if (summed.empty() || in.G == in.H || compared.a.shape() != of_heads) return "";
  const std::string groups =
      "each group of " + std::to_string(in.H / in.G) + " (H / G) query heads";
  const Tensor sums =
      sum_to(cast(compared.a, DType::f64).reshaped(split), summed).reshaped(planned.shape);
  std::optional<Tensor> bounds;
  if (precision != nullptr) bounds = expected_error(planned.request, in, *precision);
  if (compare(sums, compared.b, compared.tolerance, bounds ? &*bounds : nullptr).same())
    return "A agrees with B if it is summed over " + groups;
  return "A has a gradient for each query head; that of a key/value head is the sum over " + groups;
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
                     [&](const std::string& hint) { return hint.starts_with("A agrees"); });
}

/// Sets the diagnosis of a pair that does not pass.
void search_mistake(const Variant& job, const Evidence& evidence, SearchLimits& limits,
                    TensorPair& pair) {
  const auto start = std::chrono::steady_clock::now();
  try {
    pair.diagnosis = diagnose(job, evidence, limits);
  } catch (const std::bad_alloc&) {
    pair.hints.emplace_back("the mistake was not searched for, because this takes too much memory");
    return;
  }
  if (limits.seconds && !is_of_gradients(evidence.output)) {  // for all outputs
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    limits.seconds = std::max(0.0, *limits.seconds - passed.count());
  }
  if (!pair.diagnosis->findings.empty() || !pair.diagnosis->arithmetic.empty()) pair.hints.clear();
}

/// Whether the pair passes, or a hint explains the difference.
bool is_explained(const Wrong& wrong, const Job& job, TensorPair& pair) {
  if (pair.passed() || is_explained(pair)) return true;
  const std::string hint = other_layout(wrong, job);
  if (!hint.empty()) pair.hints = {hint};
  return !hint.empty() || !pair.found.same_shape;
}

/// Finds out what explains the difference, unless a hint does.
void explain(const Wrong& wrong, const Job& job, const PreparedJob& prepared,
             const PlannedOutput& planned, const Precision& precision, SearchLimits& limits,
             TensorPair& pair) {
  if (is_explained(wrong, job, pair)) return;
  if (pair.found.same()) return;  // a gate fails, but the errors are within their bounds
  const Tensor reference = cast(pair.compared.b, DType::f64);
  std::optional<Tensor> bounds = pair.compared.bounds;
  Tolerance tolerance = pair.compared.tolerance;
  if (!pair.gates.empty() && !bounds && tolerance_text(tolerance).empty()) {
    tolerance = default_tolerance(pair.compared.a.dtype(), pair.compared.a.dtype());
    if (missing_bound_reason(wrong.output, job.options).empty())
      bounds = expected_error(wrong.output, prepared.inputs, precision);
  }
  const bool is_of_keys = planned.axes.contains(Axis::GD) || planned.axes.contains(Axis::GDv);
  const std::size_t heads = is_of_keys ? prepared.inputs.G : prepared.inputs.H;
  const Evidence evidence{wrong.output,
                          pair.compared.a,
                          reference,
                          bounds ? &*bounds : nullptr,
                          tolerance,
                          bounds ? &precision : nullptr,
                          matrices_of(pair.compared.a.shape(), planned.axes, heads)};
  search_mistake(variant_of(job), evidence, limits, pair);
}

/// The same of a pair that was compared in parts.
void explain(const PartwiseJob& parts, PartwiseJob::Found& found, const Job& job,
             const PlannedOutput& planned, const Precision& precision, SearchLimits& limits) {
  TensorPair& pair = found.pair;
  if (is_explained({pair.compared, planned.request, &precision}, job, pair)) return;
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

/// Whether a large output is best computed together with its bounds.
bool is_expected_in_parts(const PlannedOutput& planned, const MatchedOutput& match,
                          const Inputs& in) {
  const Output* output = std::get_if<Output>(&planned.request);
  return output != nullptr && is_expected_in_parts(*output, in) &&
         match.tensor.size() == element_count(planned.shape);
}

bool is_finite(const Tensor& tensor) {
  const auto all = tensor.data<double>();
  return std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
}

/// Whether gradients are best computed together with their bounds: because they are large, and
/// without NaN and infinities, of which bounds know nothing.
bool has_large_gradients(const Inputs& in) {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  if (saturating_product({in.B, in.H, in.rows.size(), in.S}) < kLarge) return false;
  for (const InputRow& row : kInputs)
    if (in[row.input] && is_float(in[row.input]->dtype()) && row.kind != InputKind::mask &&
        !is_finite(cast(*in[row.input], DType::f64)))
      return false;
  return true;
}

/// The gradients of a comparison with their bounds, those of each precision computed together.
class ExpectedGradients {
 public:
  /// Both must outlive this object.
  ExpectedGradients(const Inputs& in, const std::vector<Request>& outputs)
      : in_(in), outputs_(outputs) {}

  /// The output with this index has bounds of this precision. `has_value`: its value is taken from
  /// here, too.
  void add(std::size_t index, const Precision& precision, bool has_value) {
    groups_.try_emplace(precision.name, Group{precision, {}})
        .first->second.indices.push_back(index);
    added_.emplace(index, Added{precision.name, has_value, {}});
  }
  bool has_value(std::size_t index) const {
    const auto found = added_.find(index);
    return found != added_.end() && found->second.has_value;
  }
  /// Moves what was computed to the caller; nullopt if the output was not added.
  std::optional<Expected> of(std::size_t index) {
    const auto found = added_.find(index);
    if (found == added_.end()) return std::nullopt;
    if (!found->second.expected) compute(groups_.at(found->second.group));
    return *std::exchange(found->second.expected, std::nullopt);
  }

 private:
  struct Group {
    Precision precision;
    std::vector<std::size_t> indices;
  };
  struct Added {
    std::string group;
    bool has_value;
    std::optional<Expected> expected;
  };

  void compute(const Group& group) {
    std::vector<Request> requests;
    for (const std::size_t i : group.indices) requests.push_back(outputs_[i]);
    std::vector<Expected> all = expected_gradients(requests, in_, group.precision);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!has_value(group.indices[k])) all[k].value = {};
      added_.at(group.indices[k]).expected = std::move(all[k]);
    }
  }

  const Inputs& in_;
  const std::vector<Request>& outputs_;
  std::map<std::string, Group> groups_;
  std::map<std::size_t, Added> added_;
};

}  // namespace

CompareReport compare_to_reference(const TensorMap& given, Document document,
                                   const ReferenceOptions& typed, TensorFiles& files) {
  const Tolerance& tolerance = typed.tolerance;
  require_metrics(typed.gates, true, typed.has_tolerance);
  check_values(document);
  document.erase("outputs");  // A determines the outputs
  Job job = read_job(std::move(document), files);
  job.options.compute = Compute::f64;
  job.options.path = Path::reference;
  std::size_t input_size = 0;  // of the widest numbers
  for (const auto& [name, tensor] : job.tensors)
    if (is_float(tensor.dtype())) input_size = std::max(input_size, size_of(tensor.dtype()));
  const std::optional<DType> of_inputs = dtype_of_16_bit_inputs(job);
  const bool may_have_parts = typed.gates.empty() && !typed.has_tolerance &&
                              !typed.keeps_elements && PartwiseJob::fits(job);
  const TensorMap as_read = may_have_parts ? job.tensors : TensorMap();
  const auto convert = [&] {  // once, and not for each variant
    files.budget().charge(bytes_of_conversions(job), "inputs", "convert");
    for (const auto& [name, tensor] : TensorMap(job.tensors))
      if (is_float(tensor.dtype())) job.tensors.set(name, cast(tensor, DType::f64));
  };
  may_have_parts ? PartwiseJob::convert_when_read(job) : convert();
  CompareReport report{{}, {}, {}, tolerance, true, {}};
  SearchLimits search = typed.search;
  std::vector<std::string> unmatched;
  const std::vector<MatchedOutput> matches = match_outputs(given, typed, job, unmatched);
  if (!unmatched.empty()) refuse_unmatched(unmatched, given, prepare_job(job), job);
  request_outputs(matches, typed.as.empty() ? "A" : "--as", job);
  PreparedJob prepared = prepare_job(job);
  std::optional<PartwiseJob> parts;
  if (may_have_parts) {
    if (are_used_as_given(prepared.inputs)) parts.emplace(job, prepared.inputs);
    for (std::size_t i = 0; i < matches.size() && parts; ++i)
      if (!parts->has_parts(prepared.plan.outputs[i], matches[i].tensor.shape())) parts.reset();
    if (!parts) {
      job.tensors = as_read;
      convert();
      prepared = prepare_job(job);
    }
  }
  const std::vector<Precision> precisions = precisions_of(matches, job.outputs, of_inputs, typed);
  std::vector<Gating> gatings = gatings_of(matches, precisions, typed, job);
  std::vector<bool> bounded;
  for (std::size_t i = 0; i < matches.size(); ++i)
    bounded.push_back(has_bound(job.outputs[i], gatings[i], typed, job.options));
  const bool has_large = std::any_of(job.outputs.begin(), job.outputs.end(), is_of_gradients) &&
                         has_large_gradients(prepared.inputs);
  ExpectedGradients gradients(prepared.inputs, job.outputs);
  std::vector<Request> others;
  bool is_in_parts = true;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const PlannedOutput& planned = prepared.plan.outputs[i];
    const bool has_size = matches[i].tensor.size() == element_count(planned.shape);
    if (is_of_gradients(planned.request) && has_size &&
        (bounded[i] || (has_large && missing_bound_reason(planned.request, job.options).empty())))
      gradients.add(i, bounded[i] ? precisions[i] : named("f64"), has_large);
    if (gradients.has_value(i)) continue;
    others.push_back(planned.request);
    is_in_parts =
        is_in_parts && bounded[i] && is_expected_in_parts(planned, matches[i], prepared.inputs);
  }
  const auto executed = [&](const std::vector<Request>& outputs) {
    Job part = job;
    part.outputs = outputs;
    return execute({part, {prepared.inputs, plan(prepared.inputs, outputs)}, nullptr, job.outputs});
  };
  if (parts) others.clear();
  const Plan of_executed = plan(prepared.inputs, others);
  MemoryEstimate memory(of_executed);
  std::vector<const PlannedOutput*> outputs_with_bounds;
  for (std::size_t i = 0; i < bounded.size(); ++i)
    if (bounded[i]) outputs_with_bounds.push_back(&prepared.plan.outputs[i]);
  if (parts)
    memory = {}, memory.add("parts of the job", parts->bytes());
  else if (!outputs_with_bounds.empty())
    memory.add("error bounds", bytes_of_errors(prepared.inputs, outputs_with_bounds));
  std::vector<Request> with_baseline;
  for (std::size_t i = 0; i < gatings.size(); ++i)
    if (needs_baseline(gatings[i])) with_baseline.push_back(job.outputs[i]);
  if (!with_baseline.empty())
    memory.add("baselines", MemoryEstimate(plan(prepared.inputs, with_baseline)).bytes());
  if (std::any_of(job.outputs.begin(), job.outputs.end(),
                  [](const Request& output) { return std::holds_alternative<Gradient>(output); }))
    memory.add(
        "the search for mistakes",
        bytes_of_backward_pass(prepared.inputs, std::min(thread_count(), kMostSearchThreads)));
  memory.require(job.document.name, files.limits().memory);
  Execution reference;
  if (is_in_parts || parts)
    reference.warnings = warnings_of(job, prepared.inputs, {}, job.outputs, NanPolicy::allow);
  else
    reference = executed(others);
  for (const std::string& warning : reference.warnings)
    report.notes.push_back("warning: " + warning);
  const auto finish = [&](TensorPair pair, const Precision& precision) {
    const bool is_wider = input_size > 0 && input_size < size_of(precision.stored);
    if (is_wider && typed.precision.empty() && pair.diagnosis && pair.diagnosis->findings.empty())
      pair.hints.push_back(
          "the inputs have narrower numbers than the result: if the kernel computes in " +
          std::string(input_size == 2 ? "16 bits, give --precision f16 or bf16"
                                      : "float32, give --precision f32"));
    report.pairs.push_back(std::move(pair));
  };
  const auto warn_of_zeros = [&](const std::string& name, const Precision& precision) {
    report.notes.push_back("warning: " + name +
                           ": zeros would pass, too, because the error bound of " + precision.name +
                           " exceeds all numbers; test smaller inputs, or set --rtol, --atol or "
                           "--gate");
  };
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const MatchedOutput& match = matches[i];
    Compared compared{match.name, match.tensor, {}, {}, "", tolerance};
    const Precision& precision = precisions[i];
    if (parts) {
      const PlannedOutput& planned = prepared.plan.outputs[i];
      PartwiseJob::Found found = parts->compare(std::move(compared), planned, precision);
      if (found.pair.passed() && found.accepts_zeros) warn_of_zeros(match.name, precision);
      explain(*parts, found, job, planned, precision, search);
      finish(std::move(found.pair), precision);
      continue;
    }
    if (std::optional<Expected> gradient = gradients.of(i)) {
      const bool is_known = gradients.has_value(i) && is_finite(gradient->value);
      compared.b = is_known ? std::move(gradient->value)
                   : gradients.has_value(i)
                       ? executed({job.outputs[i]}).result.outputs.at(match.name)
                       : reference.result.outputs.at(match.name);
      if (bounded[i]) compared.bounds = std::move(gradient->error);
    } else if (is_in_parts) {
      Expected large = expected(std::get<Output>(job.outputs[i]), prepared.inputs, precision);
      compared.b = std::move(large.value), compared.bounds = std::move(large.error);
    } else {
      compared.b = reference.result.outputs.at(match.name);
      if (bounded[i] && compared.a.size() == compared.b.size())  // for hints in any shape
        compared.bounds = expected_error(job.outputs[i], prepared.inputs, precision);
    }
    if (compared.bounds) {
      compared.bound_of = precision.name;
      require_finite_bounds(compared.name, cast(compared.b, DType::f64), *compared.bounds);
    }
    if (typed.as.empty() && given.size() == 1 && !given.contains(match.name) &&
        compared.a.shape() != compared.b.shape()) {
      const std::string suggestion = suggested_outputs(match.tensor, prepared, job);
      if (!suggestion.empty()) report.notes.push_back(suggestion);
    }
    const PlannedOutput& planned = prepared.plan.outputs[i];
    const TensorAxes axes = planned.axes.empty() ? axes_by_name(match.name, compared.b.shape())
                                                 : axes_of_output(planned, prepared.inputs.H);
    if (needs_baseline(gatings[i]))
      gatings[i].baseline = baseline_of(job.outputs[i], job, precision);
    TensorPair pair = compared_pair(std::move(compared), axes, prepared.inputs.D, gatings[i]);
    gatings[i].baseline.reset();
    if (!pair.found.same_shape && is_of_gradients(job.outputs[i]))
      if (std::string hint = sum_over_groups(pair.compared, planned, prepared.inputs,
                                             bounded[i] ? &precision : nullptr);
          !hint.empty())
        pair.hints = {std::move(hint)};
    if (pair.passed() && pair.gates.empty() && pair.compared.bounds && accepts_zeros(pair.compared))
      warn_of_zeros(match.name, precision);
    explain({pair.compared, job.outputs[i], bounded[i] ? &precision : nullptr}, job, prepared,
            planned, precision, search, pair);
    finish(std::move(pair), precision);
  }
  return report;
}

}  // namespace attn
