#include "attn/job/draws.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/job/saved_layer.h"
#include "attn/problem/inputs.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

struct LayerInputs {
  Input weight, bias;
};

constexpr auto kLayerInputs = std::to_array<LayerInputs>({{Input::W_Q, Input::b_Q},
                                                          {Input::W_K, Input::b_K},
                                                          {Input::W_V, Input::b_V},
                                                          {Input::W_O, Input::b_O},
                                                          {Input::W_gate, Input::b_gate}});

[[noreturn]] void refuse_targets(const std::string& found) {
  fail_data({.subject = "to", .expected = "a name or a list of names", .found = found});
}

std::vector<std::string> names_of_targets(const Json& to) {
  std::vector<std::string> names;
  std::set<std::string_view> seen;
  const auto add = [&](const Json& item, const std::string& place) {
    const auto name = item.get<std::string>();
    if (name == nullptr) refuse_targets(place + item.kind());
    if (name->empty()) refuse_targets(place + "an empty string");
    if (!seen.insert(*name).second)
      fail_data({.subject = "to", .message = "'" + printable(*name) + "' is given twice"});
    names.push_back(*name);
  };
  if (const auto list = to.get<JsonArray>()) {
    if (list->empty()) refuse_targets("an empty list");
    for (const Json& item : *list) add(item, "a list with ");
  } else if (to.is_array()) {
    refuse_targets("a list of numbers");
  } else {
    add(to, "");
  }
  return names;
}

void require_parts(const Tensor& tensor, const std::vector<std::string>& to, bool equal) {
  const std::size_t extent = tensor.rank() == 0 ? 0 : tensor.shape()[0];
  if (to.size() == 1 || (equal ? extent == to.size() : extent % to.size() == 0)) return;
  fail_data({.subject = "to",
             .expected = "a first axis of " + std::string(equal ? "" : "a multiple of ") +
                         std::to_string(to.size()) + " elements",
             .found = "shape " + to_string(tensor.shape())});
}

DrawnInputs inputs_of_linear(const std::vector<std::string>& to, const TensorMap& layer) {
  const Tensor& weight = layer.at("weight");
  const Tensor* bias = layer.find("bias");
  require_parts(weight, to, false);
  DrawnInputs inputs{.tensors = {}, .in_out = true};
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto row =
        std::find_if(kLayerInputs.begin(), kLayerInputs.end(),
                     [&](const LayerInputs& each) { return name_of(each.weight) == to[i]; });
    if (row == kLayerInputs.end())
      fail_data({.subject = "to",
                 .expected = "W_Q, W_K, W_V, W_O or W_gate for a layer",
                 .found = "'" + to[i] + "'"});
    inputs.tensors.set(to[i], transposed_matrices(part_of_rows(weight, i, to.size())));
    if (bias != nullptr)
      inputs.tensors.set(std::string(name_of(row->bias)), part_of_rows(*bias, i, to.size()));
  }
  return inputs;
}

/// The tensor under its name, or its elements along the first axis under several names.
TensorMap parts_of(const Tensor& tensor, const std::vector<std::string>& to) {
  require_parts(tensor, to, true);
  TensorMap parts;
  for (std::size_t i = 0; i < to.size(); ++i)
    parts.set(to[i], to.size() == 1 ? tensor : tensor.at(i));
  return parts;
}

}  // namespace

DrawStep parse_step(const Json& step) {
  const auto members = step.get<JsonObject>();
  if (members == nullptr)
    fail_data({.expected = "an object with a random method or a seed", .found = step.kind()});
  DrawStep parsed;
  JsonObject spec;
  for (const auto& [key, value] : *members) {
    if (key == "to")
      parsed.to = names_of_targets(value);
    else if (key == "seed")
      parsed.seed = value;
    else
      spec.emplace_back(key, value);
  }
  if (parsed.seed && members->size() > 1)
    fail_data({.message = "a step has either a seed or a method", .hint = "write two steps"});
  parsed.spec = Json{std::move(spec)};
  return parsed;
}

TensorMap named_tensors(const DrawStep& step, const TensorMap& drawn) {
  TensorMap named;
  if (step.to.empty()) return named;
  if (drawn.contains("")) return parts_of(drawn.at(""), step.to);
  if (step.to.size() > 1)
    fail_data({.subject = "to", .expected = "one name for a layer", .found = "a list"});
  for (const auto& [name, tensor] : drawn) named.set(step.to[0] + "." + name, tensor);
  return named;
}

DrawnInputs inputs_of(const DrawStep& step, const TensorMap& drawn) {
  for (const std::string& name : step.to)
    if (!input_named(name))
      fail_data({.subject = "to",
                 .message = "unknown input '" + printable(name) + "'" +
                            did_you_mean(name, input_names(), NameKind::input)});
  if (drawn.contains("out_proj.weight")) {
    if (!step.to.empty())
      fail_data({.subject = "to",
                 .message = "MultiheadAttention sets all weights and biases; leave out 'to'"});
    return {.tensors = saved_layer(drawn, "").tensors, .in_out = true, .needs_heads = true};
  }
  if (step.to.empty()) return {};
  if (drawn.contains("weight")) return inputs_of_linear(step.to, drawn);
  return {.tensors = parts_of(drawn.at(""), step.to)};
}

}  // namespace attn
