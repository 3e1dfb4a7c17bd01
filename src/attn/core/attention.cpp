#include "attn/core/attention.h"

#include <algorithm>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/same_name.h"
#include "attn/base/suggestion.h"
#include "attn/core/heads.h"
#include "attn/core/stages.h"
#include "attn/core/summaries.h"

namespace attn {
namespace {

/// (M, heads * D) -> (heads, M, D).
Tensor weight_heads(const Tensor& W, std::size_t heads) {
  const std::size_t M = W.shape()[0], width = W.shape()[1];
  return split_heads(W.reshaped({1, M, width}), heads).reshaped({heads, M, width / heads});
}

/// Takes off the axes that the user does not see: batch in front, heads behind it.
Tensor without_lifted_axes(const Tensor& tensor, const Inputs& in, bool has_heads) {
  Shape shape = tensor.shape();
  if (has_heads && !in.with_heads) shape.erase(shape.begin() + 1);
  if (!in.batched) shape.erase(shape.begin());
  return tensor.reshaped(shape);
}

/// (B, L, M) as the embeddings, or packed queries, are given.
Tensor rows_as_given(const Tensor& rows, const Inputs& in, const Options& options) {
  if (!in.batched) return without_lifted_axes(rows, in, false);
  return options.batch_second ? swap_first_axes(rows) : rows;
}

/// With all letters, as the stages have it; context head by head.
Tensor computed(std::string_view name, Stages& stages) {
  if (name == "positions") return stages.positions();
  if (name == "inputs") return stages.chosen(stages.inputs());
  if (name == "queries") return stages.queries();
  if (name == "keys") return stages.keys();
  if (name == "values") return stages.values();
  if (name == "present_K") return stages.present_keys();
  if (name == "present_V") return stages.present_values();
  if (name == "scores") return stages.scores();
  if (name == "scaled_scores") return stages.scaled_scores();
  if (name == "masked_scores") return stages.masked_scores();
  if (name == "weights") return stages.weights();
  if (name == "mean_weights") return mean_over_heads(stages.weights());
  if (name == "key_weights") return sum_over_queries(stages.weights());
  if (name == "row_max") return stages.row_max();
  if (name == "logsumexp") return stages.logsumexp();
  if (name == "output") return stages.output();
  return stages.head_context();
}

/// A given tensor, or its columns head by head: as it was given, whatever is computed in.
std::optional<Tensor> given(std::string_view name, const TensorMap& tensors, const Inputs& in) {
  if (const Tensor* tensor = tensors.find(name)) return *tensor;
  if (name == "W_Q_heads") return weight_heads(tensors.at("W_Q"), in.H);
  if (name == "W_K_heads") return weight_heads(tensors.at("W_K"), in.G);
  if (name == "W_V_heads") return weight_heads(tensors.at("W_V"), in.G);
  return std::nullopt;
}

/// What an output cannot be had without, or "" when this problem has it.
std::string_view missing(std::string_view name, const TensorMap& tensors, const Options& options) {
  const std::string_view needed = name == "output"      ? "W_O"
                                  : name == "W_Q_heads" ? "W_Q"
                                  : name == "W_K_heads" ? "W_K"
                                  : name == "W_V_heads" ? "W_V"
                                  : name == "inputs"    ? "embeddings"
                                                        : "";
  if (name == "positions" && options.position.kind == Position::Kind::none) return "position";
  return needed.empty() || tensors.contains(needed) ? "" : needed;
}

std::vector<std::string> every_name() {
  std::vector<std::string> names = kInputNames;
  for (const OutputName& output : kOutputNames) names.emplace_back(output.name);
  return names;
}

/// " (did you mean 'scores'?)", or "; there are positions, inputs, ..." where no name is near.
std::string nearest_or_all(const std::string& name) {
  std::string text = did_you_mean(name, every_name());
  if (!text.empty()) return text;
  for (const OutputName& output : kOutputNames)
    text += (text.empty() ? "; there are " : ", ") + std::string(output.name);
  return text;
}

}  // namespace

void check_outputs(const std::vector<std::string>& outputs, const TensorMap& tensors,
                   const Options& options) {
  ProblemList problems;
  for (const std::string& name : outputs) {
    const bool is_input =
        std::any_of(kInputNames.begin(), kInputNames.end(),
                    [&](const std::string& input) { return same_name(name, input); });
    const bool is_output =
        std::any_of(kOutputNames.begin(), kOutputNames.end(),
                    [&](const OutputName& output) { return same_name(name, output.name); });
    if (name.empty())
      problems.add({.subject = "outputs", .expected = "names of outputs", .found = "an empty one"});
    else if (!is_input && !is_output)
      problems.add({.subject = "outputs",
                    .expected = "names of outputs",
                    .found = "'" + printable(name) + "'" + nearest_or_all(name)});
    else if (is_input && !tensors.contains(name))
      problems.add(
          {.subject = "outputs", .expected = name + " among the tensors", .found = "none"});
    else if (const std::string_view needed = missing(name, tensors, options); !needed.empty())
      problems.add({.subject = "outputs",
                    .expected = std::string(needed) + " for " + name,
                    .found = "none"});
  }
  if (!problems.empty()) problems.raise(ErrorKind::usage);
}

Tensor as_given(std::string_view name, const Tensor& full, const Inputs& in,
                const Options& options) {
  if (name == "positions") return full;
  if (name == "inputs" || name == "output") return rows_as_given(full, in, options);
  if (name == "mean_weights") return without_lifted_axes(full, in, false);
  if (name != "context") return without_lifted_axes(full, in, true);
  if (in.packed) return rows_as_given(side_by_side(full), in, options);
  return options.layout == Layout::bhld ? full : swap_middle_axes(full);
}

std::vector<std::string> available_outputs(const TensorMap& tensors, const Options& options) {
  std::vector<std::string> names;
  for (const OutputName& output : kOutputNames)
    if (missing(output.name, tensors, options).empty()) names.emplace_back(output.name);
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TensorMap attend(const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs) {
  const Inputs in = make_inputs(tensors, options);
  check_outputs(outputs, tensors, options);
  return attend(in, tensors, options, outputs);
}

TensorMap attend(const Inputs& in, const TensorMap& tensors, const Options& options,
                 const std::vector<std::string>& outputs, const RowSinks& sinks,
                 Overflows* overflows) {
  Rounding rounding(in.result);
  const RowSinks exact = in.result == in.compute ? sinks : rounding.before(sinks);
  Stages stages(in, options, outputs, &exact);
  TensorMap results;
  for (const std::string& name : outputs) {
    std::optional<Tensor> result = given(name, tensors, in);
    if (!result && stages.hand_on(name)) continue;
    if (!result)
      result = rounding.rounded(name, as_given(name, computed(name, stages), in, options));
    if (const auto sink = sinks.find(name); sink != sinks.end())
      sink->second(rows_of(*result));
    else
      results.set(name, *result);
  }
  if (overflows != nullptr) *overflows = rounding.overflows();
  return results;
}

}  // namespace attn
