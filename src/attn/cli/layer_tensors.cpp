#include "attn/cli/layer_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "attn/draw/heat_map.h"
#include "attn/job/field_value.h"
#include "attn/problem/output_table.h"

namespace attn {
namespace {

constexpr char kSeparators[] = "._-/";

/// Where "layer" and the number of the layer begin in a name.
struct LayerPlace {
  std::size_t word, number;
};

std::optional<LayerPlace> place_of_layer(std::string_view name) {
  constexpr std::string_view kSaved = "arr_", kLayer = "layer";
  if (name.starts_with(kSaved)) return LayerPlace{0, kSaved.size()};
  const std::size_t word = name.find(kLayer);
  if (word == name.npos) return std::nullopt;
  std::size_t at = word + kLayer.size();
  if (name.substr(at).starts_with('s')) ++at;
  if (at < name.size() && std::strchr(kSeparators, name[at]) != nullptr) ++at;
  return LayerPlace{word, at};
}

/// "model.attn" of "model." and ".attn".
std::string joined(std::string_view before, std::string_view after) {
  if (before.empty() && !after.empty() && std::strchr(kSeparators, after[0]) != nullptr)
    after.remove_prefix(1);
  const auto last_kept = before.find_last_not_of(kSeparators);
  before = before.substr(0, last_kept == before.npos ? 0 : last_kept + 1);
  return std::string(before).append(after);
}

}  // namespace

bool is_output_of_job(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash != name.npos && output_named(name.substr(slash + 1));
}

std::optional<LayerName> layer_in_name(const std::string& name) {
  const std::optional<LayerPlace> place = place_of_layer(name);
  if (!place || place->number >= name.size() || is_output_of_job(name)) return std::nullopt;
  LayerName found;
  const auto [end, error] =
      std::from_chars(name.data() + place->number, name.data() + name.size(), found.layer);
  if (error != std::errc() || found.layer < 0) return std::nullopt;
  found.series = name.substr(0, place->number).append(kLayerWord).append(end);
  found.rest = joined(std::string_view(name).substr(0, place->word), end);
  return found;
}

std::optional<LayerTensors> join_layers(const TensorMap& tensors, const std::string& wanted) {
  std::map<std::string, std::map<std::int64_t, const Tensor*>> all;
  std::map<std::string, std::string> rests;
  for (const auto& [name, tensor] : tensors) {
    const auto found = layer_in_name(name);
    if (!found || (!wanted.empty() && found->series != wanted)) continue;
    rests[found->series] = found->rest;
    const bool is_new = all[found->series].emplace(found->layer, &tensor).second;
    if (!is_new || tensor.rank() < 2 || tensor.rank() > kLeadingAxes.size() + 1)
      return std::nullopt;
  }
  std::erase_if(all, [](const auto& entry) { return entry.second.size() < 2; });
  if (all.size() != 1) return std::nullopt;
  const auto& [name, layers] = *all.begin();
  const Tensor& first = *layers.begin()->second;
  Shape shape = first.shape();
  LayerTensors joined{name, rests.at(name), {}, {}};
  for (const auto& [number, tensor] : layers) {
    if (tensor->shape() != shape || tensor->dtype() != first.dtype()) return std::nullopt;
    joined.numbers.push_back(number);
  }
  shape.insert(shape.begin(), layers.size());
  joined.tensor = Tensor(first.dtype(), shape);
  std::byte* to = joined.tensor.mutable_raw();
  for (const auto& [number, tensor] : layers) to = std::copy_n(tensor->raw(), tensor->bytes(), to);
  return joined;
}

}  // namespace attn
