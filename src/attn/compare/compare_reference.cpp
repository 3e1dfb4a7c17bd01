#include "attn/compare/compare_reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/bounds/expected_error.h"
#include "attn/bounds/gradient_error.h"
#include "attn/compare/baseline.h"
#include "attn/compare/compare_axes.h"
#include "attn/compare/explained_difference.h"
#include "attn/compare/matched_outputs.h"
#include "attn/compare/partwise_job.h"
#include "attn/diagnose/backward_pass.h"
#include "attn/job/job.h"
#include "attn/model/model_job.h"
#include "attn/problem/threads.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// Errors: usage, if the output has no error bound.
void require_bound(const Request& output, const Inputs& in) {
  const std::string why = missing_bound_reason(output, in);
  if (!why.empty())
    fail_usage("--reference: no error bound is known " + why + "; set --rtol, --atol or --ulp");
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
               const Inputs& in) {
  if (typed.has_tolerance) return false;
  const bool is_needed =
      gating.gates.empty() || std::any_of(gating.gates.begin(), gating.gates.end(),
                                          [](const Gate* gate) { return gate->names("bound"); });
  if (is_needed) require_bound(output, in);
  return missing_bound_reason(output, in).empty();
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

/// The job in float64, without the outputs that its document requests.
Job job_in_float64(Document document, TensorFiles& files) {
  document.erase("outputs");  // A determines the outputs
  Job job = read_job(std::move(document), files);
  job.options.compute = Compute::f64;
  job.options.path = Path::reference;
  return job;
}

/// The bytes of the widest floating-point numbers of the inputs; 0 if there are none.
std::size_t widest_number(const TensorMap& tensors) {
  std::size_t size = 0;
  for (const auto& [name, tensor] : tensors)
    if (is_float(tensor.dtype())) size = std::max(size, size_of(tensor.dtype()));
  return size;
}

/// The comparison of some tensors with their job.
class ReferenceComparison {
 public:
  ReferenceComparison(const TensorMap& given, Document document, const ReferenceOptions& typed,
                      TensorFiles& files)
      : given_(given),
        typed_(typed),
        files_(files),
        job_(job_in_float64(std::move(document), files)),
        input_size_(widest_number(job_.tensors)),
        search_(typed.search) {
    report_.tolerance = typed.tolerance;
    report_.to_reference = true;
    const std::optional<DType> of_inputs = dtype_of_16_bit_inputs(job_);
    prepare();
    precisions_ = precisions_of(matches_, job_.outputs, of_inputs, typed_);
    for (std::size_t i = 0; i < matches_.size(); ++i)
      precisions_[i] = precision_of(job_.outputs[i], job_.options, std::move(precisions_[i]));
    gatings_ = gatings_of(matches_, precisions_, typed_, job_);
    for (std::size_t i = 0; i < matches_.size(); ++i)
      bounded_.push_back(has_bound(job_.outputs[i], gatings_[i], typed_, prepared_.inputs));
  }

  CompareReport report() {
    compute();
    for (std::size_t i = 0; i < matches_.size(); ++i) parts_ ? compare_parts(i) : compare_whole(i);
    return std::move(report_);
  }

 private:
  /// Converts the inputs, once and not for each variant of the job.
  void convert() {
    files_.budget().charge(bytes_of_conversions(job_, true), "inputs", "convert");
    for (const auto& [name, tensor] : TensorMap(job_.tensors))
      if (is_float(tensor.dtype())) job_.tensors.set(name, cast(tensor, DType::f64));
  }

  /// Matches the outputs and checks the job. A large job is divided into parts.
  void prepare() {
    const bool may_have_parts = typed_.gates.empty() && !typed_.has_tolerance &&
                                !typed_.keeps_elements && PartwiseJob::fits(job_);
    const TensorMap as_read = may_have_parts ? job_.tensors : TensorMap();
    may_have_parts ? PartwiseJob::convert_when_read(job_) : convert();
    std::vector<std::string> unmatched;
    matches_ = match_outputs(given_, typed_, job_, unmatched);
    if (!unmatched.empty()) refuse_unmatched(unmatched, given_, prepare_job(job_), job_);
    request_outputs(matches_, typed_.as.empty() ? "A" : typed_.origin_of_as, job_);
    prepared_ = prepare_job(job_);
    if (!may_have_parts || divide()) return;
    job_.tensors = as_read;
    convert();
    prepared_ = prepare_job(job_);
  }

  /// Returns false if the job has no parts.
  bool divide() {
    if (!are_used_as_given(prepared_.inputs)) return false;
    parts_.emplace(job_, prepared_.inputs);
    for (std::size_t i = 0; i < matches_.size(); ++i)
      if (!parts_->has_parts(planned(i), matches_[i].tensor.shape())) {
        parts_.reset();
        return false;
      }
    return true;
  }

  /// Computes what is not computed together with its bounds.
  void compute() {
    gradients_.emplace(prepared_.inputs, job_.outputs);
    std::vector<Request> others = choose_gradients();
    if (parts_) others.clear();
    require_memory(others);
    if (is_in_parts_ || parts_)
      reference_.warnings = warnings_of(job_, prepared_.inputs, {}, job_.outputs, NanPolicy::allow);
    else
      reference_ = executed(others);
    for (const std::string& warning : reference_.warnings)
      report_.notes.push_back("warning: " + warning);
  }

  /// Chooses the gradients that are computed together with their bounds; returns the other outputs.
  std::vector<Request> choose_gradients() {
    const bool has_large = std::any_of(job_.outputs.begin(), job_.outputs.end(), is_of_gradients) &&
                           has_large_gradients(prepared_.inputs);
    std::vector<Request> others;
    for (std::size_t i = 0; i < matches_.size(); ++i) {
      const Request& output = planned(i).request;
      const bool has_size = matches_[i].tensor.size() == element_count(planned(i).shape);
      if (is_of_gradients(output) && has_size &&
          (bounded_[i] || (has_large && missing_bound_reason(output, prepared_.inputs).empty())))
        gradients_->add(i, bounded_[i] ? precisions_[i] : *precision_named("f64"), has_large);
      if (gradients_->has_value(i)) continue;
      others.push_back(output);
      is_in_parts_ = is_in_parts_ && bounded_[i] &&
                     is_expected_in_parts(planned(i), matches_[i], prepared_.inputs);
    }
    return others;
  }

  void require_memory(const std::vector<Request>& executed) const {
    MemoryEstimate memory;
    std::vector<const PlannedOutput*> with_bounds;
    std::vector<Request> with_baseline;
    for (std::size_t i = 0; i < matches_.size(); ++i) {
      if (bounded_[i]) with_bounds.push_back(&planned(i));
      if (needs_baseline(gatings_[i])) with_baseline.push_back(job_.outputs[i]);
    }
    if (parts_)
      memory.add("parts of the job", parts_->bytes());
    else
      memory = MemoryEstimate(plan(prepared_.inputs, executed));
    if (!parts_ && !with_bounds.empty())
      memory.add("error bounds", bytes_of_errors(prepared_.inputs, with_bounds));
    if (!with_baseline.empty())
      memory.add("baselines", MemoryEstimate(plan(prepared_.inputs, with_baseline)).bytes());
    if (std::any_of(job_.outputs.begin(), job_.outputs.end(),
                    [](const Request& output) { return std::holds_alternative<Gradient>(output); }))
      memory.add(
          "the search for mistakes",
          bytes_of_backward_pass(prepared_.inputs, std::min(thread_count(), kMostSearchThreads)));
    memory.require(job_.document.name, files_.limits().memory);
  }

  Execution executed(const std::vector<Request>& outputs) const {
    Job part = job_;
    part.outputs = outputs;
    return execute(
        {part, {prepared_.inputs, plan(prepared_.inputs, outputs)}, nullptr, job_.outputs});
  }

  void compare_parts(std::size_t i) {
    PartwiseJob::Found found =
        parts_->compare({matches_[i].name, matches_[i].tensor, {}, {}, "", typed_.tolerance},
                        planned(i), precisions_[i]);
    if (found.pair.passed() && found.accepts_zeros) warn_of_zeros(i);
    explain_difference(*parts_, found, job_, planned(i), precisions_[i], search_);
    finish(std::move(found.pair), precisions_[i]);
  }

  void compare_whole(std::size_t i) {
    Compared compared = compared_with_reference(i);
    suggest_outputs(i, compared);
    const TensorAxes axes =
        planned(i).axes.empty()
            ? axes_by_labels(labels_in({}, matches_[i].name, compared.b.shape()),
                             compared.b.shape())
            : axes_of_output(planned(i), prepared_.inputs.H);
    if (needs_baseline(gatings_[i]))
      gatings_[i].baseline = baseline_of(job_.outputs[i], job_, precisions_[i]);
    TensorPair pair = compared_pair(std::move(compared), axes, prepared_.inputs.D, gatings_[i]);
    gatings_[i].baseline.reset();
    if (!pair.found.same_shape && is_of_gradients(job_.outputs[i]))
      if (const auto hint = sum_over_groups(pair.compared, planned(i), prepared_.inputs,
                                            bounded_[i] ? &precisions_[i] : nullptr))
        pair.hints = {*hint};
    if (pair.passed() && pair.gates.empty() && pair.compared.bounds && accepts_zeros(pair.compared))
      warn_of_zeros(i);
    explain_difference(job_, prepared_, planned(i), precisions_[i], bounded_[i], search_, pair);
    finish(std::move(pair), precisions_[i]);
  }

  /// A tensor, what it should be, and the bounds of its errors.
  Compared compared_with_reference(std::size_t i) {
    const auto& [name, tensor] = matches_[i];
    Compared compared{name, tensor, {}, {}, "", typed_.tolerance};
    const Request& output = job_.outputs[i];
    if (std::optional<Expected> gradient = gradients_->of(i)) {
      const bool is_known = gradients_->has_value(i) && is_finite(gradient->value);
      compared.b = is_known                   ? std::move(gradient->value)
                   : gradients_->has_value(i) ? executed({output}).result.outputs.at(name)
                                              : reference_.result.outputs.at(name);
      if (bounded_[i]) compared.bounds = std::move(gradient->error);
    } else if (is_in_parts_) {
      Expected large = expected(std::get<Output>(output), prepared_.inputs, precisions_[i]);
      compared.b = std::move(large.value), compared.bounds = std::move(large.error);
    } else {
      compared.b = reference_.result.outputs.at(name);
      if (bounded_[i] && compared.a.size() == compared.b.size())  // for hints in any shape
        compared.bounds = expected_error(output, prepared_.inputs, precisions_[i]);
    }
    if (compared.bounds) {
      compared.bound_of = precisions_[i].name;
      require_finite_bounds(name, cast(compared.b, DType::f64), *compared.bounds);
    }
    return compared;
  }

  /// Notes what else a single tensor of another shape could be.
  void suggest_outputs(std::size_t i, const Compared& compared) {
    if (!typed_.as.empty() || given_.size() != 1 || given_.contains(matches_[i].name) ||
        compared.a.shape() == compared.b.shape())
      return;
    std::string suggestion = suggested_outputs(matches_[i].tensor, prepared_, job_);
    if (!suggestion.empty()) report_.notes.push_back(std::move(suggestion));
  }

  void warn_of_zeros(std::size_t i) {
    report_.notes.push_back("warning: " + matches_[i].name +
                            ": zeros would pass, too, because the error bound of " +
                            precisions_[i].name +
                            " exceeds all numbers; test smaller inputs, or set --rtol, --atol or "
                            "--gate");
  }

  void finish(TensorPair pair, const Precision& precision) {
    const bool is_wider = input_size_ > 0 && input_size_ < size_of(precision.stored);
    if (is_wider && typed_.precision.empty() && pair.diagnosis && pair.diagnosis->findings.empty())
      pair.hints.push_back(
          {"the inputs have narrower numbers than the result: if the kernel computes in " +
           std::string(input_size_ == 2 ? "16 bits, give --precision f16 or bf16"
                                        : "float32, give --precision f32")});
    report_.pairs.push_back(std::move(pair));
  }

  const PlannedOutput& planned(std::size_t i) const { return prepared_.plan.outputs[i]; }

  const TensorMap& given_;
  const ReferenceOptions& typed_;
  TensorFiles& files_;
  Job job_;
  const std::size_t input_size_;  ///< widest_number()
  SearchLimits search_;           ///< what is left of them
  PreparedJob prepared_;
  std::optional<PartwiseJob> parts_;  ///< of a large job

  // Of each output of job_:
  std::vector<MatchedOutput> matches_;
  std::vector<Precision> precisions_;
  std::vector<Gating> gatings_;
  std::vector<bool> bounded_;

  std::optional<ExpectedGradients> gradients_;
  bool is_in_parts_ = true;  ///< outputs are computed together with their bounds
  Execution reference_;      ///< of the others
  CompareReport report_;
};

}  // namespace

CompareReport compare_to_reference(const TensorMap& given, Document document,
                                   const ReferenceOptions& typed, TensorFiles& files) {
  require_metrics(typed.gates, true, typed.has_tolerance);
  check_values(document);
  return ReferenceComparison(given, std::move(document), typed, files).report();
}

}  // namespace attn
