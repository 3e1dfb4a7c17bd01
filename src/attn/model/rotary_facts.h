// Rotary positions: the objects rope_parameters and rope_scaling of a configuration as keys of a
// job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/model/layer_job.h"

namespace attn {

/// How an architecture rotates queries and keys, where its configuration does not say otherwise.
struct RotaryDefaults {
  const char* kind = "half";
  double base = 10000;
  const char* base_key = "rope_theta";  ///< of the configuration; that of rope_parameters is first
  /// Of the columns of a head; nullopt: all, and transformers ignores partial_rotary_factor.
  std::optional<double> fraction = {};
  const char* fraction_key = "partial_rotary_factor";  ///< of the configuration, likewise
  std::int64_t width = 0;       ///< columns of a head with rotary positions; 0: all
  std::string layer_type = {};  ///< the object of rope_parameters to use; "": one for all layers
  bool is_scaled = true;        ///< whether rope_scaling applies to layers of this type
};

/// Sets rotary.* from rope_parameters, or from rope_theta, rope_scaling and partial_rotary_factor.
/// Errors: data, for scalings that no job can express.
void set_rotary(LayerJob& job, const RotaryDefaults& defaults);

/// rope_type of an object for all layers, or "default".
std::string rope_type_of(const LayerJob& job);

/// The factor of the scale that YaRN's mscale_all_dim adds, as in DeepSeek-V2 and V3; 1 without it.
double yarn_scale_of(const LayerJob& job);

}  // namespace attn
