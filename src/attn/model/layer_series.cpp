#include "attn/model/layer_series.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/grouped.h"
#include "attn/base/text.h"
#include "attn/job/field_value.h"
#include "attn/model/model_job.h"

namespace attn {
std::string element_of(const std::string& name, std::int64_t index) {
  return name + (name.find('#') == name.npos ? "#[" : "[") + std::to_string(index) + "]";
}

bool names_layer(const std::string& text) { return text.find(kLayerWord) != text.npos; }

std::string name_of_layer(const std::string& text, std::int64_t layer) {
  const std::string number = std::to_string(layer);
  std::string name = text;
  for (std::size_t at = 0; (at = name.find(kLayerWord, at)) != name.npos; at += number.size())
    name.replace(at, kLayerWord.size(), number);
  return name;
}

std::string unknown_placeholder(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t at = 0; (at = text.find('{', at)) != text.npos; ++at) {
    const std::size_t end = text.find('}', at);
    if (end == text.npos) break;
    const std::string word = text.substr(at, end + 1 - at);
    const bool is_word =
        word.size() > 2 && std::all_of(word.begin() + 1, word.end() - 1, is_letter);
    if (is_word && word != kLayerWord) return word;
  }
  return "";
}

std::vector<std::string> lines_of_layers(const std::vector<LayerWarning>& warnings,
                                         std::size_t count) {
  Grouped<std::int64_t> groups;
  for (const LayerWarning& warning : warnings) groups.add(warning.text, warning.layer);
  std::vector<std::string> lines;
  for (const auto& [text, layers] : groups.groups()) {
    const auto digits = [](std::int64_t layer) { return std::to_string(layer); };
    const std::string where =
        (layers.size() == 1 ? "layer " : "layers ") + join(layers, ", ", digits);
    lines.push_back(layers.size() == count ? text : where + ": " + text);
  }
  return lines;
}

bool has_several_layers(const Document& document) {
  const Entry* const layer = document.find("layer");
  return layer != nullptr && document.find("model") != nullptr &&
         (layer->value.is_array() || word_of(layer->value) != nullptr);
}

std::vector<std::int64_t> listed_layers(const Entry& entry, std::int64_t count) {
  std::vector<std::int64_t> layers;
  if (word_of(entry.value) != nullptr) {
    constexpr std::int64_t kMaxLayers = 65536;
    if (count > kMaxLayers)
      fail_data({.where = where_of(entry),
                 .expected = "at most " + std::to_string(kMaxLayers) + " layers",
                 .found = std::to_string(count)});
    layers.resize(static_cast<std::size_t>(count));
    std::iota(layers.begin(), layers.end(), std::int64_t{0});
    return layers;
  }
  if (!entry.value.is_array()) return {integer_of(entry.value)};
  layers = integers_of(entry.value);
  std::set<std::int64_t> seen;
  for (const std::int64_t layer : layers)
    if (!seen.insert(layer).second)
      throw Error(entry.from_flag ? ErrorKind::usage : ErrorKind::data,
                  Problem{.where = where_of(entry),
                          .message = "layer " + std::to_string(layer) + " is given twice"});
  if (layers.empty())
    throw Error(
        entry.from_flag ? ErrorKind::usage : ErrorKind::data,
        Problem{.where = where_of(entry), .expected = "one layer or more", .found = "none"});
  return layers;
}

LayerSeries::LayerSeries(Document document, TensorFiles& files)
    : document_(std::move(document)), files_(files) {
  const ModelReference reference = model_of(document_);
  const ModelLayers model(reference.folder, files);
  const std::int64_t count = model.count(reference.stack);
  Entry listed = document_.at("layer");
  layers_ = listed_layers(listed, count);
  listed_ = std::exchange(listed.value, Json{});
  document_.set(std::move(listed));
  for (const std::int64_t layer : layers_) model.require_layer(reference.stack, layer);
  read_hidden(count);
}

void LayerSeries::read_hidden(std::int64_t count) {
  Entry hidden = document_.at("hidden");
  const auto text = hidden.value.get<std::string>();
  if (text != nullptr && names_layer(*text)) return;
  hidden_ = attn::read_hidden(hidden, files_);
  const Shape& shape = hidden_->shape();
  const bool has_layers =
      (shape.size() == 3 || shape.size() == 4) && (shape[0] == static_cast<std::size_t>(count) ||
                                                   shape[0] == static_cast<std::size_t>(count) + 1);
  if (!has_layers) {
    const std::string layers = std::to_string(count);
    fail_data({.where = where_of(hidden),
               .expected = "hidden states of all " +
                           counted(static_cast<std::size_t>(count), "layer") + ", (" + layers +
                           ", L, M) or (" + layers +
                           ", B, L, M), or a name with {layer} for one file per layer",
               .found = to_string(shape)});
  }
  if (text != nullptr) return;
  hidden.value = Json{};
  hidden.numbers = std::make_shared<const Tensor>(*hidden_);
  document_.set(std::move(hidden));
}

Document LayerSeries::whole() const {
  Document document = document_;
  Entry listed = document.at("layer"), hidden = document.at("hidden");
  listed.value = listed_;
  document.set(std::move(listed));
  if (!hidden.numbers) return document;
  hidden.value = Json{"numbers of shape " + to_string(hidden.numbers->shape())};
  document.set(std::move(hidden));
  return document;
}

/// Charged to the budget only as long as the result exists.
std::shared_ptr<const Tensor> LayerSeries::read_for_a_while(const Entry& hidden,
                                                            const TensorRef& ref) const {
  ReadBudget& budget = files_.budget();
  const std::size_t left = budget.left();
  auto tensor =
      std::make_unique<const Tensor>(within(hidden.origin, [&] { return files_.read(ref); }));
  const std::size_t charged = std::min(left - budget.left(), tensor->bytes());
  return {tensor.release(), [&budget, charged](const Tensor* released) {
            delete released;
            budget.release(charged);
          }};
}

Document LayerSeries::document(std::int64_t layer) const {
  Document one = document_;
  Entry number = one.at("layer"), hidden = one.at("hidden");
  number.value = Json{layer};
  const auto text = hidden.value.get<std::string>();
  if (hidden_) {
    hidden.numbers = std::make_shared<const Tensor>(hidden_->at(static_cast<std::size_t>(layer)));
    if (text != nullptr) hidden.value = Json{element_of(*text, layer)};
  } else {
    const std::string name = name_of_layer(*text, layer);
    const TensorRef given = parse_tensor_ref(path_in(hidden.folder, *text));
    // One file is read once; of safetensors, each layer reads only its own tensors.
    if (!names_layer(given.path) && !is_model_file(given.path)) {
      hidden.numbers = read_for_a_while(hidden, parse_tensor_ref(path_in(hidden.folder, name)));
      hidden.value = Json{name};
    }  // expand_model() replaces {layer} in other names
  }
  one.set(std::move(number));
  one.set(std::move(hidden));
  return one;
}

}  // namespace attn
