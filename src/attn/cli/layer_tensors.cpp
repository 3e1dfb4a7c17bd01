#include "attn/cli/layer_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "attn/core/output_table.h"
#include "attn/job/field_value.h"
#include "attn/report/heat_map.h"

namespace attn {
namespace {

/// Where the number of the layer begins in a name; npos if there is none.
std::size_t start_of_number(std::string_view name) {
  constexpr std::string_view kSaved = "arr_", kLayer = "layer";
  if (name.starts_with(kSaved)) return kSaved.size();
  std::size_t at = name.find(kLayer);
  if (at == name.npos) return at;
  at += kLayer.size();
  if (name.substr(at).starts_with('s')) ++at;
  if (at < name.size() && std::strchr("._-/", name[at]) != nullptr) ++at;
  return at;
}

}  // namespace

bool is_output_of_job(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash != name.npos && output_named(name.substr(slash + 1));
}

std::optional<LayerName> layer_in_name(const std::string& name) {
  const std::size_t start = start_of_number(name);
  if (start >= name.size() || is_output_of_job(name)) return std::nullopt;
  LayerName found;
  const auto [end, error] =
      std::from_chars(name.data() + start, name.data() + name.size(), found.layer);
  if (error != std::errc() || found.layer < 0) return std::nullopt;
  found.series = name.substr(0, start).append(kLayerWord).append(end);
  return found;
}

std::optional<JoinedLayers> join_layers(const TensorMap& tensors, const std::string& wanted) {
  std::map<std::string, std::map<std::int64_t, const Tensor*>> all;
  for (const auto& [name, tensor] : tensors) {
    const auto found = layer_in_name(name);
    if (!found || (!wanted.empty() && found->series != wanted)) continue;
    const bool is_new = all[found->series].emplace(found->layer, &tensor).second;
    if (!is_new || tensor.rank() < 2 || tensor.rank() > kLeadingAxes.size() + 1)
      return std::nullopt;
  }
  std::erase_if(all, [](const auto& entry) { return entry.second.size() < 2; });
  if (all.size() != 1) return std::nullopt;
  const auto& [name, layers] = *all.begin();
  const Tensor& first = *layers.begin()->second;
  Shape shape = first.shape();
  JoinedLayers joined{name, {}, {}};
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
