#include "attn/core/output_table.h"

#include <unordered_map>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kOutputs.size(); ++i)
    if (kOutputs[i].output != static_cast<Output>(i)) return false;
  return true;
}
static_assert(is_in_order(), "a row of kOutputs is not at its enumerator's place");

/// The missing tensor or option that this output requires; "" if the problem has the output.
std::string_view missing_for(Output output, const TensorMap& tensors, const Options& options) {
  if (output == Output::positions)
    return options.position.kind == Position::Kind::none ? "position" : "";
  const std::optional<Input> source = row_of(output).source, other = row_of(output).other_source;
  const bool has_other = other && contains(tensors, *other);
  return !source || has_other || contains(tensors, *source) ? "" : name_of(*source);
}

/// " (did you mean 'scores'?)", or "; the outputs are positions, inputs, ..." if no name is
/// similar.
std::string nearest_or_all(const std::string& name) {
  std::vector<std::string> names = input_names();
  for (const OutputRow& row : kOutputs) names.emplace_back(row.name);
  std::string text = did_you_mean(name, names);
  if (!text.empty()) return text;
  for (const OutputRow& row : kOutputs)
    text += (text.empty() ? "; the outputs are " : ", ") + std::string(row.name);
  return text;
}

}  // namespace

std::optional<Output> output_named(std::string_view name) {
  static const std::unordered_map<std::string_view, Output, NameHash> outputs = [] {
    std::unordered_map<std::string_view, Output, NameHash> all;
    for (const OutputRow& row : kOutputs) all.emplace(row.name, row.output);
    return all;
  }();
  const auto found = outputs.find(name);
  return found == outputs.end() ? std::nullopt : std::optional(found->second);
}

bool OutputSet::needs_scores() const {
  for (const OutputRow& row : kOutputs)
    if (contains(row.output) && attn::needs_scores(row.output)) return true;
  return false;
}

std::optional<Request> request_named(std::string_view name) {
  if (const auto output = output_named(name)) return *output;
  if (const auto input = input_named(name)) return *input;
  return std::nullopt;
}

std::vector<Request> requests_named(const std::vector<std::string>& names) {
  std::vector<Request> requests;
  requests.reserve(names.size());
  for (const std::string& name : names) {
    const auto request = request_named(name);
    if (!request) throw Error(ErrorKind::internal, name + ": an output that was not checked");
    requests.push_back(*request);
  }
  return requests;
}

std::string_view name_of(const Request& request) {
  return std::visit([](auto what) { return name_of(what); }, request);
}

OutputSet outputs_among(const std::vector<Request>& requests) {
  OutputSet outputs;
  for (const Request& request : requests)
    if (const Output* output = std::get_if<Output>(&request)) outputs.insert(*output);
  return outputs;
}

std::vector<std::string> available_outputs(const TensorMap& tensors, const Options& options) {
  std::vector<std::string> names;
  for (const OutputRow& row : kOutputs)
    if (missing_for(row.output, tensors, options).empty()) names.emplace_back(row.name);
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

void check_outputs(const std::vector<std::string>& names, const TensorMap& tensors,
                   const Options& options) {
  ProblemList problems;
  const auto add = [&](std::string message) {
    problems.add({.subject = "outputs", .message = std::move(message)});
  };
  for (const std::string& name : names) {
    const auto output = output_named(name);
    const auto input = input_named(name);
    const std::string_view missing = output ? missing_for(*output, tensors, options) : "";
    if (name.empty())
      add("expected the name of an output, found an empty string");
    else if (!input && !output)
      add("unknown output '" + printable(name) + "'" + nearest_or_all(name));
    else if (input && !contains(tensors, *input))
      add("'" + name + "' is not an input of this job");
    else if (!missing.empty())
      add("'" + name + "' requires " + std::string(missing));
  }
  if (!problems.empty()) problems.raise(ErrorKind::usage);
}

}  // namespace attn
