#include "attn/problem/output_table.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

/// The missing tensor or option that this output requires; "" if the problem has the output.
std::string_view missing_for(Output output, const AttentionArguments& given) {
  if (output == Output::positions)
    return given.options.position.kind == Position::Kind::none ? "position" : "";
  const std::optional<Input> source = row_of(output).source, other = row_of(output).other_source;
  const bool has_other = other && contains(given.tensors, *other);
  return !source || has_other || contains(given.tensors, *source) ? "" : name_of(*source);
}

std::vector<std::string> output_names() { return texts_of(kOutputs, &OutputRow::name); }

void add_problem(ProblemList& problems, std::string message) {
  problems.add({.subject = "outputs", .message = std::move(message)});
}

/// The input with this name in upper or lower case, or that other libraries always call so.
std::optional<Input> input_called(std::string_view name) {
  const auto is_same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  const std::string ours = our_name(std::string(name), NameKind::input);
  for (const std::string_view one : {name, std::string_view(ours)})
    for (const InputRow& row : kInputs)
      if (std::equal(one.begin(), one.end(), row.name.begin(), row.name.end(), is_same))
        return row.input;
  return std::nullopt;
}

/// The input in the name of a gradient: "grad_Q", "gradQ", "Q_grad", "query.grad", "dQ", "d_q".
std::optional<Input> input_of_gradient(std::string_view name) {
  for (const std::string_view start : {"grad_", "grad", "d_", "d"})
    if (name.starts_with(start))
      if (const auto input = input_called(name.substr(start.size()))) return input;
  for (const std::string_view end : {".grad", "_grad"})
    if (name.ends_with(end))
      if (const auto input = input_called(name.substr(0, name.size() - end.size()))) return input;
  return std::nullopt;
}

/// Why the problem has no such gradient; "" if it has.
std::string missing_gradient(const Request& request, const AttentionArguments& given) {
  const auto is_given = [&](const Seed& seed) { return contains(given.tensors, seed.input); };
  if (std::none_of(kSeeds.begin(), kSeeds.end(), is_given))
    return "requires grad_context, grad_output, grad_weights or grad_logsumexp";
  if (given.options.normaliser == Normaliser::hardmax)
    return "does not exist, because normaliser hardmax has no derivative";
  if (given.options.bf16_products) return "is not computed with compute bf16";
  const Gradient* gradient = std::get_if<Gradient>(&request);
  if (!gradient) return "";
  const std::string name(name_of(gradient->of));
  const Tensor* tensor = find(given.tensors, gradient->of);
  if (tensor == nullptr) return "requires " + name;
  if (!is_float(tensor->dtype()))
    return "does not exist, because " + name + " has dtype " +
           std::string(name_of(tensor->dtype())) + "; floating-point numbers have a gradient" +
           (tensor->dtype() == DType::i64 ? " (in JSON, write 1.0 instead of 1)" : "");
  return "";
}

/// Adds an error unless this problem has the requested tensor.
void require_available(const Request& request, const AttentionArguments& given,
                       ProblemList& problems) {
  if (is_of_gradients(request)) {
    const std::string missing = missing_gradient(request, given);
    if (!missing.empty())
      add_problem(problems, "'" + std::string(name_of(request)) + "' " + missing);
    return;
  }
  const Input* input = std::get_if<Input>(&request);
  const Output* output = std::get_if<Output>(&request);
  const std::string_view missing = output ? missing_for(*output, given) : "";
  if (!missing.empty())
    add_problem(problems,
                "'" + std::string(name_of(*output)) + "' requires " + std::string(missing));
  else if (input && row_of(*input).kind == InputKind::seed && !contains(given.tensors, *input))
    add_problem(problems, "'" + std::string(name_of(*input)) +
                              "' is given by a job, not computed; outputs are gradients of its "
                              "inputs, such as grad_Q");
  else if (input && !contains(given.tensors, *input))
    add_problem(problems,
                "'" + std::string(name_of(*input)) + "' is not an input of this job" +
                    did_you_mean(std::string(name_of(*input)), output_names(), NameKind::output));
}

/// " (did you mean 'scores'?)", or "; the outputs are positions, inputs, ..." if no name is
/// similar. Of several similar names, those that the problem lacks are left out.
std::string nearest_or_all(const std::string& name, const AttentionArguments& given) {
  std::vector<std::string> known = request_names(), lacking;
  const std::vector<std::string> similar = similar_names(name, known, NameKind::output);
  for (const std::string& one : similar) {
    ProblemList problems;
    require_available(*request_named(one), given, problems);
    if (!problems.empty()) lacking.push_back(one);
  }
  if (lacking.size() < similar.size())
    std::erase_if(known, [&](const std::string& one) {
      return std::find(lacking.begin(), lacking.end(), one) != lacking.end();
    });
  std::string text = did_you_mean(name, known, NameKind::output);
  if (!text.empty()) return text;
  for (const OutputRow& row : kOutputs)
    text += (text.empty() ? "; the outputs are " : ", ") + std::string(row.name);
  return text + ", grad_NAME";
}

}  // namespace

bool OutputSet::needs_scores() const {
  for (const OutputRow& row : kOutputs)
    if (contains(row.output) && attn::needs_scores(row.output)) return true;
  return false;
}

std::string gradient_description(std::string_view input) {
  return "gradient of the loss with respect to " + std::string(input);
}

std::string_view name_of(Gradient gradient) {
  static const auto names = [] {
    std::array<std::string, kInputs.size()> all;
    for (const InputRow& row : kInputs) all[index_of(row.input)] = "grad_" + std::string(row.name);
    return all;
  }();
  return names[index_of(gradient.of)];
}

std::optional<Gradient> gradient_named(std::string_view name) {
  const std::optional<Input> of = input_of_gradient(name);
  return of && has_gradient(*of) ? std::optional(Gradient{*of}) : std::nullopt;
}

const std::vector<std::string>& request_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = output_names();
    all.insert(all.end(), input_names().begin(), input_names().end());
    for (const InputRow& row : kInputs)
      if (has_gradient(row.input)) all.emplace_back(name_of(Gradient{row.input}));
    return all;
  }();
  return names;
}

std::optional<Request> request_named(std::string_view name) {
  if (const auto output = output_named(name)) return *output;
  if (const auto input = input_named(name)) return *input;
  if (const auto gradient = gradient_named(name)) return *gradient;
  if (name == "softmax_d" || name == "dpsum" || name == "dPsum") return Output::delta;
  return std::nullopt;
}

bool is_of_gradients(const Request& request) {
  const Output* output = std::get_if<Output>(&request);
  return std::holds_alternative<Gradient>(request) ||
         (output != nullptr && row_of(*output).phase == Phase::gradient);
}

std::string_view name_of(const Request& request) {
  return std::visit([](auto id) { return name_of(id); }, request);
}

std::vector<std::string> names_of(const std::vector<Request>& requests) {
  std::vector<std::string> names;
  names.reserve(requests.size());
  for (const Request& request : requests) names.emplace_back(name_of(request));
  return names;
}

OutputSet outputs_among(const std::vector<Request>& requests) {
  OutputSet outputs;
  for (const Request& request : requests)
    if (const Output* output = std::get_if<Output>(&request)) outputs.insert(*output);
  return outputs;
}

bool is_of_pairs(const Request& request) {
  const Output* const output = std::get_if<Output>(&request);
  if (output == nullptr) return false;
  const AxisList& axes = row_of(*output).axes;
  return axes.size() >= 2 && axes[axes.size() - 2] == Axis::L && axes[axes.size() - 1] == Axis::S;
}

std::vector<Request> available_outputs(const AttentionArguments& given) {
  std::vector<Request> requests;
  for (const OutputRow& row : kOutputs)
    if (row.phase == Phase::gradient ? missing_gradient(row.output, given).empty()
                                     : missing_for(row.output, given).empty())
      requests.emplace_back(row.output);
  for (const auto& [name, tensor] : given.tensors)
    if (const auto input = input_named(name)) requests.emplace_back(*input);
  return requests;
}

std::vector<Request> available_gradients(const AttentionArguments& given) {
  std::vector<Request> requests;
  for (const InputRow& row : kInputs) {
    const Gradient gradient{row.input};
    if (has_gradient(row.input) && missing_gradient(gradient, given).empty())
      requests.emplace_back(gradient);
  }
  return requests;
}

void check_outputs(const std::vector<Request>& requests, const AttentionArguments& given) {
  ProblemList problems;
  for (const Request& request : requests) require_available(request, given, problems);
  if (!problems.empty()) problems.raise(ErrorKind::usage);
}

std::vector<Request> requests_named(const std::vector<std::string>& names,
                                    const AttentionArguments& given) {
  std::vector<Request> requests;
  ProblemList problems;
  bool all_known = true;
  for (const std::string& name : names) {
    const std::optional<Request> request = request_named(name);
    if (request) {
      require_available(*request, given, problems);
      requests.push_back(*request);
    } else {
      all_known = false;
      if (const std::optional<Input> of = input_of_gradient(name)) {
        add_problem(problems, "'" + printable(name) + "' does not exist, because " +
                                  std::string(name_of(*of)) + " has no gradient");
        continue;
      }
      add_problem(problems, name.empty() ? "expected the name of an output, found an empty string"
                                         : "unknown output '" + printable(name) + "'" +
                                               nearest_or_all(name, given));
    }
  }
  if (!all_known) problems.raise(ErrorKind::usage);
  return requests;
}

}  // namespace attn
