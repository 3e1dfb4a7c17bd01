// Facts that the configurations of many architectures state in the same way, as keys of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/model/layer_job.h"

namespace attn {

constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";

/// Sets heads.
void set_heads(LayerJob& job);

/// Sets heads, and kv_heads from num_key_value_heads.
void set_grouped_heads(LayerJob& job);

std::int64_t kv_heads_of(const LayerJob& job);

/// Sets causal, unless is_causal is false. Windows then extend to both sides.
void set_causal(LayerJob& job);

/// The key of the width of the hidden states; nullptr if there is none. Of several, the one that
/// transformers uses.
const char* width_key_of(const Config& config);

/// The width D of a head: head_dim, by default hidden_size / num_attention_heads.
std::int64_t head_width_of(const LayerJob& job);

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
void set_qk_norm(LayerJob& job, const char* kind, double epsilon);

/// Sets the scale to scalar^-0.5.
void set_scale_of(LayerJob& job, double scalar);

/// Refuses a configuration in which `key` has this value; by default, it has the other one.
void refuse_flag(const LayerJob& job, const char* key, bool value = true);

}  // namespace attn
