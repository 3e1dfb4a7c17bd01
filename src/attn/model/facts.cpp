#include "attn/model/facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "attn/base/text.h"

namespace attn {
namespace {

bool is_causal(const LayerJob& job) { return job.config().flag("is_causal", true); }

void set_window(LayerJob& job, std::int64_t keys) {
  job.set("window", Json{is_causal(job) ? JsonIntegers{keys - 1, 0} : JsonIntegers{keys, keys}});
}

}  // namespace

std::int64_t kv_heads_of(const LayerJob& job) {
  return job.config().count("num_key_value_heads", job.heads());
}

void set_heads(LayerJob& job) { job.set("heads", Json{job.heads()}); }

void set_grouped_heads(LayerJob& job) {
  set_heads(job);
  if (kv_heads_of(job) != job.heads()) job.set("kv_heads", Json{kv_heads_of(job)});
}

void set_causal(LayerJob& job) {
  if (is_causal(job)) job.set("causal", Json{true});
}

const char* width_key_of(const Config& config) {
  constexpr std::array kKeys = {"n_embed", "hidden_size", "n_embd", "d_model", "dim"};
  const auto* const key =
      std::find_if(kKeys.begin(), kKeys.end(), [&](const char* each) { return config.has(each); });
  return key == kKeys.end() ? nullptr : *key;
}

std::int64_t head_width_of(const LayerJob& job) {
  if (job.config().has("head_dim")) return job.config().count("head_dim");
  const char* const key = width_key_of(job.config());
  return job.config().count(key == nullptr ? "hidden_size" : key) / job.heads();
}

std::string layer_type_of(const LayerJob& job, const std::string& otherwise) {
  const auto index = static_cast<std::size_t>(job.layer());
  const std::string* const type = job.config().text_at("layer_types", index);
  if (type == nullptr) return otherwise;
  if (*type == "attention") return kFullAttention;  // of older versions of transformers
  if (*type != kFullAttention && *type != kSlidingAttention)
    job.config().refuse("layer_types", "'" + printable(*type) +
                                           "' is not supported, only full_attention and "
                                           "sliding_attention");
  return *type;
}

void check_layer_type(const LayerJob& job) {
  const Config& config = job.config();
  if (config.has("per_layer_config")) config.refuse("per_layer_config", "is not supported");
  const bool has_window = job.has("window");
  const std::string type = layer_type_of(job, has_window ? kSlidingAttention : kFullAttention);
  if ((type == kSlidingAttention) != has_window)
    config.refuse("layer_types", type + " is not supported for this layer, which has " +
                                     (has_window ? "a window" : "no window"));
}

void set_window_of_all(LayerJob& job, std::optional<std::int64_t> otherwise) {
  if (job.config().has("sliding_window"))
    set_window(job, job.config().count("sliding_window"));
  else if (otherwise && !job.config().mentions("sliding_window"))
    set_window(job, *otherwise);
}

void set_window_of_type(LayerJob& job, const std::string& layer_type,
                        std::optional<std::int64_t> otherwise) {
  if (layer_type == kSlidingAttention) set_window_of_all(job, otherwise);
}

void set_qk_norm(LayerJob& job, const char* kind, double epsilon) {
  job.set("qk_norm", kind);
  job.set("qk_norm_epsilon", Json{epsilon});
  job.set_tensor("q_norm", "self_attn.q_norm.weight");
  job.set_tensor("k_norm", "self_attn.k_norm.weight");
}

void set_scale_of(LayerJob& job, double scalar) {
  if (!(scalar > 0)) job.config().refuse("query_pre_attn_scalar", "expected a positive number");
  job.set("scale", Json{1 / std::sqrt(scalar)});
}

void refuse_flag(const LayerJob& job, const char* key, bool value) {
  if (job.config().flag(key, !value) == value)
    job.config().refuse(key, std::string(value ? "true" : "false") + " is not supported");
}

}  // namespace attn
