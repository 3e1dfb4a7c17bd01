// The table of architectures: the names of their tensors, and what their configurations mean.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/model/layer_job.h"

namespace attn {

/// How the weights of queries, keys and values are stored.
enum class Projections {
  separate,  ///< three tensors: q, k and v
  blocks,    ///< H*D rows of queries, G*D of keys, G*D of values
  thirds,    ///< thirds of the rows
  columns,   ///< thirds of the columns; the matrix is (in, out), as is that of the output
  per_head,  ///< for each head, D rows of queries, of keys and of values
  falcon,    ///< depends on new_decoder_architecture and multi_query
  latent,    ///< chains of projections and norms (model/latent_attention.h)
};

/// Keys of one whole number of a configuration.
using CountKeys = std::span<const char* const>;
constexpr const char* kLayersKeys[] = {"num_hidden_layers"};
constexpr const char* kHeadsKeys[] = {"num_attention_heads"};

/// The names of the weights. Of all projections but `separate`, `q` names one fused tensor; with
/// `latent`, a weight that every layer has.
struct ArchitectureWeights {
  Projections projections;
  std::string_view q, k, v, output;
};

/// The norm in front of the attention.
struct ArchitectureNorm {
  std::string_view name = {};                ///< "": none
  const char* kind = "rms";                  ///< of input_norm
  const char* epsilon_key = "rms_norm_eps";  ///< nullptr: no key
  double epsilon = 1e-6;                     ///< if the configuration has none
};

/// One row of the table. Names are those of transformers, relative to the layer and without
/// ".weight" and ".bias".
struct Architecture {
  std::string_view model_type;
  /// "encoder", "decoder" or "cross" (the attention of the decoder to the encoder's output); "" for
  /// a model with one stack of layers.
  std::string_view stack = {};
  /// Keys of the numbers of layers and of heads. The first that is present counts: transformers
  /// sets names that several architectures share last.
  CountKeys layers_keys = kLayersKeys, heads_keys = kHeadsKeys;
  /// What may be in front of the names, tried in this order.
  std::span<const std::string_view> roots;
  std::string_view layer;  ///< "layers.#."; '#' is the number of the layer
  ArchitectureWeights weights;
  ArchitectureNorm norm = {};
  const char* affine_key = nullptr;            ///< whether the norm has weights; nullptr: it has
  double norm_offset = 0;                      ///< added to the weights of all norms
  void (*set_facts)(LayerJob& job) = nullptr;  ///< sets all other keys
};

const std::vector<Architecture>& architectures();

/// The stacks of a model_type; empty if it is unknown.
std::vector<const Architecture*> stacks_of(const std::string& model_type);

/// Sets all keys of the layer but embeddings; those of the norm in front of the attention only if
/// `with_norm`. Errors: data, if a tensor is missing, or if no job can express the layer.
void set_layer(const Architecture& architecture, bool with_norm, LayerJob& job);

}  // namespace attn
