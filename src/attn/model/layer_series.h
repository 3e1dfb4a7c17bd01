// Jobs for several layers of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Whether the text contains kLayerWord.
bool names_layer(const std::string& text);

/// The text with the number in place of each kLayerWord.
std::string name_of_layer(const std::string& text, std::int64_t layer);

/// The first "{word}" in the text that is not kLayerWord; "" if there is none.
std::string unknown_placeholder(const std::string& text);

/// The name of one element of a tensor's first axis: "h.npy#[3]", "h.npz#states[3]".
std::string element_of(const std::string& name, std::int64_t index);

/// A warning about one of the layers.
struct LayerWarning {
  std::int64_t layer = 0;
  std::string text;
};

/// A line for each different text, with its layers: "layers 0, 3: TEXT". Layers are left out if the
/// warning is about all `count` of them.
std::vector<std::string> lines_of_layers(const std::vector<LayerWarning>& warnings,
                                         std::size_t count);

/// Whether a document has the key model and several layers: its key layer is "all" or a list.
bool has_several_layers(const Document& document);

/// The layers that the key layer of a document names, in order, each once. `count` is the number of
/// layers of the model; config.json can state any number. Errors: usage, data, also if "all" are
/// too many.
std::vector<std::int64_t> listed_layers(const Entry& layer, std::int64_t count);

/// The jobs of several layers of a model. Their hidden states are a name with {layer}, or one
/// tensor (layers, L, M) or (layers, B, L, M), whose first axis has all layers of the stack. It may
/// have one more element, as hidden_states of transformers does: the output of the last layer.
class LayerSeries {
 public:
  /// `files` reads the configuration, and hidden states that are all in one file; it outlives this.
  /// Errors: usage, data, no_input.
  LayerSeries(Document document, TensorFiles& files);

  /// In the order given, each once.
  const std::vector<std::int64_t>& layers() const { return layers_; }
  /// The document of all layers; inline hidden states are replaced by their shape.
  Document whole() const;
  /// The job of one of the layers, for expand_model(). Errors: as TensorFiles::read().
  Document document(std::int64_t layer) const;

 private:
  void read_hidden(std::int64_t count);
  std::shared_ptr<const Tensor> read_for_a_while(const Entry& hidden, const TensorRef& ref) const;

  Document document_;  ///< without the list of layers, which each layer would copy
  Json listed_;        ///< the value of its key layer
  TensorFiles& files_;
  std::vector<std::int64_t> layers_;
  std::optional<Tensor> hidden_;  ///< of all layers; nullopt: a name with {layer}
};

}  // namespace attn
