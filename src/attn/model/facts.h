// Facts that the configurations of many architectures state in the same way, as keys of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/model/layer_job.h"

namespace attn {

/// Sets heads and kv_heads from num_attention_heads and num_key_value_heads.
void set_heads(LayerJob& job);

std::int64_t heads_of(const LayerJob& job);
std::int64_t kv_heads_of(const LayerJob& job);

/// Sets causal, unless is_causal is false. Windows then extend to both sides.
void set_causal(LayerJob& job);

/// The width D of a head: head_dim, by default hidden_size / num_attention_heads.
std::int64_t head_width_of(const LayerJob& job);

/// How an architecture rotates queries and keys, where its configuration does not say otherwise.
struct RotaryDefaults {
  const char* kind = "half";
  double base = 10000;
  /// Of the columns of a head, unless partial_rotary_factor is given; nullopt: transformers ignores
  /// that key, and rotates all.
  std::optional<double> fraction = {};
  std::int64_t width = 0;       ///< columns of a head with rotary positions; 0: all
  std::string layer_type = {};  ///< the object of rope_parameters to use; "": the whole
};

/// Sets rotary.* from rope_parameters, or from rope_theta, rope_scaling and partial_rotary_factor.
/// Errors: data, for scalings that no job can express.
void set_rotary(LayerJob& job, const RotaryDefaults& defaults);

/// rope_type, or "default".
std::string rope_type_of(const LayerJob& job);

/// The factor of the scale that YaRN's mscale_all_dim adds, as in DeepSeek-V2 and V3; 1 without it.
double yarn_scale_of(const LayerJob& job);

/// The type of the layer in layer_types; `otherwise` if the configuration has none. Errors: data,
/// for types other than full_attention and sliding_attention.
std::string layer_type_of(const LayerJob& job, const std::string& otherwise);

/// Errors: data, if all keys of the layer are set, but not as layer_types or per_layer_config says.
void check_layer_type(const LayerJob& job);

/// Sets a window of sliding_window keys up to the query's own, or of as many on each side where
/// is_causal is false; of `otherwise` keys, if any, where the configuration does not have
/// sliding_window. null means no window.
void set_window_of_all(LayerJob& job, std::optional<std::int64_t> otherwise);

/// Likewise, in layers of type sliding_attention only.
void set_window_of_type(LayerJob& job, const std::string& layer_type,
                        std::optional<std::int64_t> otherwise);

/// Sets the normalisation `kind` of queries and keys, with the weights q_norm and k_norm of the
/// layer's attention.
void set_qk_norm(LayerJob& job, const char* kind, double epsilon, const std::string& q,
                 const std::string& k);

/// Sets the scale to scalar^-0.5.
void set_scale_of(LayerJob& job, double scalar);

/// Refuses a configuration in which `key` has this value; by default, it has the other one.
void refuse_flag(const LayerJob& job, const char* key, bool value = true);

}  // namespace attn
