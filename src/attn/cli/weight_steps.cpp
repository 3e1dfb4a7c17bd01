#include "attn/cli/weight_steps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/job/recorded_options.h"
#include "attn/problem/mask.h"

namespace attn {
namespace {

/// Why weights of these options are not explained; "" if they are.
std::string not_explained(const Options& options) {
  if (options.score != Score::dot && options.score != Score::cosine)
    return "The score function of the job is not a sum of products, so its steps are not shown.";
  if (options.bf16_products)
    return "The job multiplies rounded numbers, so the steps are not shown.";
  if (options.normaliser != Normaliser::softmax || options.softmax_axis != SoftmaxAxis::keys ||
      options.softmax_precision != SoftmaxPrecision::automatic)
    return "The weights of the job are no plain softmax over the keys, so their steps are not "
           "shown.";
  return "";
}

/// The tensors that are added to the scores of a problem with these options.
std::vector<Input> added_inputs(const Options& options, const std::function<bool(Input)>& given) {
  std::vector<Input> inputs;
  for (const Input input : kBiasInputs)
    if (given(input) && (input != Input::key_indices || options.duplicates == Duplicates::count))
      inputs.push_back(input);
  return inputs;
}

/// The options and inputs that hide keys, as keys of the job.
std::vector<std::string> what_hides(const Options& options,
                                    const std::function<bool(Input)>& given) {
  std::vector<std::string> names;
  if (options.causal) names.emplace_back("causal");
  if (options.window != Window{}) names.emplace_back("window");
  if (options.chunk > 0) names.emplace_back("chunk");
  if (!options.mask_rule.empty()) names.emplace_back("mask_rule");
  for (const Input input :
       {Input::bias, Input::mask, Input::key_mask, Input::query_lengths, Input::key_lengths,
        Input::key_starts, Input::tree_parents, Input::blocks, Input::documents,
        Input::key_documents, Input::cu_seqlens_q, Input::key_indices})
    if (given(input)) names.emplace_back(name_of(Request{input}));
  return names;
}

/// The requests for a problem with these options; `given` says which inputs it has.
std::vector<Request> requests_for(const Options& options, const std::function<bool(Input)>& given) {
  std::vector<Request> requests = {Output::queries,
                                   given(Input::past_K) ? Output::present_K : Output::keys,
                                   given(Input::past_V) ? Output::present_V : Output::values};
  if (options.alibi || !options.bias_rule.empty() || !added_inputs(options, given).empty())
    requests.emplace_back(Output::masked_scores);
  for (const Input input : {Input::sinks, Input::head_scale})
    if (given(input)) requests.emplace_back(input);
  if (given(Input::dropout_mask)) requests.emplace_back(Output::dropped_weights);
  return requests;
}

/// The vectors of an output; nullopt if its axes are not those of draw/page_steps.h.
std::optional<HeadVectors> vectors_of(const ResultFile& result, const std::string& name) {
  HeadVectors vectors{result.tensors.at(name)};
  const std::size_t rank = vectors.tensor.rank();
  const std::vector<std::string> axes = result.labels(name).axes;
  if (rank < 2 || axes.size() != rank || vectors.tensor.size() == 0) return std::nullopt;
  const auto head = std::find(axes.begin(), axes.end(), "head");
  if (head == axes.end())
    return axes[rank - 2] == "query" || axes[rank - 2] == "key" ? std::optional(vectors)
                                                                : std::nullopt;
  const auto at = static_cast<std::size_t>(head - axes.begin());
  vectors.heads_inside = at + 2 == rank;
  vectors.heads = vectors.tensor.shape()[at];
  return vectors.heads_inside || at + 3 == rank ? std::optional(vectors) : std::nullopt;
}

std::vector<double> numbers_of(const Tensor& tensor) {
  return visit(tensor.dtype(), [&]<class T>(Type<T>) {
    std::vector<double> numbers;
    for (const T number : tensor.data<T>()) numbers.push_back(static_cast<double>(number));
    return numbers;
  });
}

/// Whether each query head has a head of `keys`, and each key of the weights a row.
bool fits(const HeadVectors& keys, const HeadVectors& queries, std::size_t count) {
  return queries.heads % keys.heads == 0 && keys.count() == count &&
         keys.matrices() * queries.heads == queries.matrices() * keys.heads;
}

/// The steps of weights from the tensors `request` of a result.
class StepsReader {
 public:
  StepsReader(const ResultFile& result, const HeatSource& source, Options options)
      : result_(result),
        source_(source),
        job_(source.key.substr(0, source.key.rfind('/') + 1)),
        made_by_(made_by_of(result.made_by, source.key)) {
    steps_.options = std::move(options);
  }

  /// The steps, or why there are none.
  std::optional<WeightSteps> read(std::string& reason) {
    reason = not_explained(steps_.options);
    if (!reason.empty()) return std::nullopt;
    const auto given = [&](Input input) {
      return recorded_key(made_by_, key_of(input)) != nullptr;
    };
    const std::vector<Request> requests = requests_for(steps_.options, given);
    const Tensor* const values = tensor(requests[2]);
    for (const Request& request : requests)
      if (request != requests[2] && request != Request{Output::dropped_weights} &&
          tensor(request) == nullptr)
        return missing(requests, reason);
    for (const Input input : added_inputs(steps_.options, given))
      steps_.added.push_back(key_of(input));
    if (steps_.options.alibi) steps_.added.emplace_back("alibi");
    if (!steps_.options.bias_rule.empty()) steps_.added.emplace_back("bias_rule");
    steps_.hides = what_hides(steps_.options, given);
    reason = "The steps of these weights are not shown: the queries and keys do not match them.";
    const auto queries = vectors_of(result_, name(requests[0]));
    const auto keys = vectors_of(result_, name(requests[1]));
    if (!queries || !keys || !set_vectors(*queries, *keys)) return std::nullopt;
    if (!steps_.added.empty() && !set_masked(*tensor(Output::masked_scores))) return std::nullopt;
    if (!set_of_heads(Input::sinks, given, steps_.sinks) ||
        !set_of_heads(Input::head_scale, given, steps_.head_scales))
      return std::nullopt;
    reason = "";
    if (given(Input::dropout_mask) && !set_dropped(requests)) return std::move(steps_);
    set_values(values == nullptr ? std::nullopt : vectors_of(result_, name(requests[2])), given);
    if (values == nullptr)
      steps_.note =
          "The result has no values. To see what this key adds to the context, compute it with " +
          flag_of(requests) + ".";
    return std::move(steps_);
  }

 private:
  static std::string key_of(Input input) { return std::string(name_of(Request{input})); }
  std::string name(const Request& request) const { return job_ + std::string(name_of(request)); }
  const Tensor* tensor(const Request& request) const { return result_.tensors.find(name(request)); }

  /// The flag that computes what the steps need.
  static std::string flag_of(const std::vector<Request>& requests) {
    return "--outputs weights," +
           join(names_of(requests), ",", [](const std::string& one) { return one; });
  }

  static std::nullopt_t missing(const std::vector<Request>& requests, std::string& reason) {
    reason = "To see how a weight comes about, compute the result with " + flag_of(requests) + ".";
    return std::nullopt;
  }

  bool set_vectors(const HeadVectors& queries, const HeadVectors& keys) {
    const Shape& shape = source_.tensor.shape();
    const std::size_t rank = shape.size();
    if (rank < 2) return false;
    const bool has_heads = rank > 2 && source_.leading_axes[0] == "head";
    const std::size_t L = shape[rank - 2], S = shape[rank - 1];
    steps_.queries = queries;
    steps_.keys = keys;
    return queries.heads == (has_heads ? shape[rank - 3] : 1) && queries.count() == L &&
           queries.matrices() * L * S == source_.tensor.size() && queries.width() == keys.width() &&
           fits(keys, queries, S);
  }

  bool set_masked(const Tensor& masked) {
    steps_.masked = masked;
    return masked.shape() == source_.tensor.shape();
  }

  /// Whether the result has the weights after dropout; if not, `note` says so.
  bool set_dropped(const std::vector<Request>& requests) {
    const Tensor* const dropped = tensor(Output::dropped_weights);
    if (dropped != nullptr && dropped->shape() == source_.tensor.shape())
      steps_.dropped = *dropped;
    else
      steps_.note =
          "Dropout changes the weights before they multiply the values. To see how, compute the "
          "result with " +
          flag_of(requests) + ".";
    return steps_.dropped.has_value();
  }

  /// Whether there are such numbers, if the job has them; sinks may be -inf.
  bool set_of_heads(Input input, const std::function<bool(Input)>& given,
                    std::vector<double>& numbers) const {
    if (!given(input)) return true;
    numbers = numbers_of(*tensor(input));
    return numbers.size() == steps_.queries.heads &&
           std::all_of(numbers.begin(), numbers.end(), [&](double number) {
             return std::isfinite(number) || (input == Input::sinks && number < 0);
           });
  }

  void set_values(std::optional<HeadVectors> values, const std::function<bool(Input)>& given) {
    const HeadVectors& keys = steps_.keys;
    if (!values || values->heads != keys.heads || !fits(*values, steps_.queries, keys.count())) {
      steps_.note = "The values of the result do not match its keys, so the context is not shown.";
      return;
    }
    steps_.values = std::move(values);
    const bool has_gates = given(Input::gate) || given(Input::W_gate);
    std::string then = has_gates ? "multiplied by its output gate" : "";
    if (const double o_scale = steps_.options.o_scale; o_scale != 1)
      then += std::string(has_gates ? " and " : "") + "divided by the option o_scale, " +
              six_digits(o_scale);
    if (!then.empty()) steps_.note = "Each element is then " + then + ".";
  }

  const ResultFile& result_;
  const HeatSource& source_;
  std::string job_;  ///< "JOB/" in a bundle
  const Json& made_by_;
  WeightSteps steps_;
};

}  // namespace

std::vector<Request> requests_of_steps(const AttentionArguments& given) {
  if (!not_explained(given.options).empty()) return {};
  return requests_for(given.options, [&](Input input) { return contains(given.tensors, input); });
}

void add_weight_steps(const ResultFile& result, const HeatSource& source, PageSet& set) {
  const Json& made_by = made_by_of(result.made_by, source.key);
  const std::string own_name = source.key.substr(source.key.rfind('/') + 1);
  if (output_named(own_name) == Output::dropped_weights)
    set.no_steps =
        "These are weights after dropout. The page of attn run --outputs weights "
        "--view=page.html explains the weights before dropout.";
  if (output_named(own_name) != Output::weights || made_by.find("job") == nullptr) return;
  if (set.map.cells.columns.size() != source.tensor.shape().back()) {
    set.no_steps = "The steps of a weight are shown if all keys are drawn: omit --cols.";
    return;
  }
  set.steps = StepsReader(result, source, recorded_options(made_by)).read(set.no_steps);
}

void add_hiding_options(const Inputs& in, WeightSteps& steps) {
  std::optional<HidingOptions> hiding = hiding_options(in);
  if (!hiding || hiding->sets.size() == 1) return;
  if (hiding->sets.size() == 2 && hiding->sets.back().size() == 1)
    steps.hides = hiding->sets.back();
  else
    steps.hiding = std::move(hiding);
}

}  // namespace attn
