// The job of one attention layer, collected from a checkpoint and its configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/io/tensor_file.h"
#include "attn/model/config.h"
#include "attn/model/latent_attention.h"

namespace attn {

/// The error for a tensor whose numbers are not stored as floats of 16 bits or more. `form` says
/// how they are stored: "U8", "stored as qweight". `method` of the quantisation; "" if unknown.
Error quantised_error(const std::string& checkpoint, const std::string& tensor,
                      const std::string& form, const std::string& method);

/// A layer of a checkpoint, and the keys of its job.
class LayerJob {
 public:
  /// `root` and `prefix` are in front of the names of the model's and the layer's tensors:
  /// "model.", "model.layers.3.". `checkpoint` is a .safetensors file or an index.
  /// `quantisation` is the method that the configuration states; "" if none.
  LayerJob(const Config& config, std::int64_t layer, std::string checkpoint,
           std::string quantisation, std::string root, std::string prefix, TensorFiles& files)
      : config_(config),
        layer_(layer),
        checkpoint_(std::move(checkpoint)),
        quantisation_(std::move(quantisation)),
        root_(std::move(root)),
        prefix_(std::move(prefix)),
        files_(files) {}

  const Config& config() const { return config_; }
  std::int64_t layer() const { return layer_; }
  const std::string& root() const { return root_; }
  const std::vector<std::pair<std::string, Json>>& keys() const { return keys_; }

  /// Whose queries, keys and values are not projections that a job can have; the values of the keys
  /// Q, K and V are then texts for readers.
  const std::optional<LatentAttention>& latent() const { return latent_; }
  void set_latent(LatentAttention latent) { latent_ = std::move(latent); }

  void set(const std::string& key, Json value);
  void set(const std::string& key, const char* word) { set(key, Json{std::string(word)}); }
  bool has(const std::string& key) const;

  bool has_tensor(const std::string& name) const;  ///< of the layer
  /// The shape of a tensor of the layer; empty if there is none.
  Shape shape_of(const std::string& name) const { return shape_of_shared(full_name(name)); }
  /// Likewise, of any tensor of the checkpoint.
  Shape shape_of_shared(const std::string& full_name) const;
  std::string full_name(const std::string& name) const { return prefix_ + name; }

  std::int64_t heads() const { return heads_; }
  void set_head_count(std::int64_t heads) { heads_ = heads; }
  std::size_t hidden_width() const { return hidden_width_; }  ///< 0: unknown
  void set_hidden_width(std::size_t width) { hidden_width_ = width; }
  /// The full name of a tensor of the layer that `key` needs. Errors: as set_tensor().
  std::string required_tensor(const std::string& key, const std::string& name) const;
  const std::string& checkpoint() const { return checkpoint_; }
  /// Sets a key to a tensor of the layer, or to a part of it (io/tensor_part.h). Errors: data, if
  /// there is none, or if its elements are not floats of 16 bits or more.
  void set_tensor(const std::string& key, const std::string& name, const std::string& part = "");
  /// Likewise, for any tensor of the checkpoint.
  void set_shared_tensor(const std::string& key, const std::string& full_name,
                         const std::string& part = "");
  /// W_Q from the weight of a Linear layer and b_Q from its bias, if it has one; `letter` is Q, K,
  /// V or O. `bias_part` is the part of the bias.
  void set_linear(const std::string& letter, const std::string& name, const std::string& part = "",
                  const std::string& bias_part = "");

 private:
  void require_tensor(const std::string& key, const std::string& full_name) const;

  const Config& config_;
  std::int64_t layer_;
  std::string checkpoint_, quantisation_, root_, prefix_;
  TensorFiles& files_;
  std::int64_t heads_ = 0;
  std::size_t hidden_width_ = 0;
  std::optional<LatentAttention> latent_;
  std::vector<std::pair<std::string, Json>> keys_;
};

}  // namespace attn
