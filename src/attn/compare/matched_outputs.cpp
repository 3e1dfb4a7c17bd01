#include "attn/compare/matched_outputs.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/compare/job_variant.h"

namespace attn {
namespace {

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

/// The name of the precision of a dtype.
std::string word_of(DType dtype) {
  return dtype == DType::f32    ? "f32"
         : dtype == DType::f16  ? "f16"
         : dtype == DType::bf16 ? "bf16"
                                : "f64";
}

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

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

}  // namespace

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

std::string suggested_outputs(const Tensor& tensor, const PreparedJob& prepared, const Job& job) {
  const std::vector<std::string> names = outputs_of_shape(tensor.shape(), prepared, job);
  if (names.empty()) return "";
  return "use --as NAME to name the output that A represents; outputs of its shape: " +
         join(names, ", ");
}

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
    Precision precision =
        *precision_named(typed.precision.empty() ? word_of(dtype) : typed.precision);
    precision.has_wide_results = is_kept && typed.precision.empty();
    if (!typed.sums.empty())
      precision = with_sums_in(std::move(precision), *precision_named(typed.sums));
    if (!typed.weights.empty()) precision = with_weights_in(std::move(precision), typed.weights);
    precisions.push_back(std::move(precision));
  }
  return precisions;
}

}  // namespace attn
