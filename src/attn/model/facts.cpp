#include "attn/model/facts.h"

#include <cmath>
#include <optional>
#include <vector>

#include "attn/base/text.h"

namespace attn {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

std::optional<Config> rope_parameters(const LayerJob& job, const std::string& layer_type) {
  const Config& config = job.config();
  std::optional<Config> rope = config.object("rope_scaling");
  if (!rope || rope->is_empty()) rope = config.object("rope_parameters");
  if (!rope) return rope;
  if (!layer_type.empty() && rope->has(layer_type.c_str())) return rope->object(layer_type.c_str());
  for (const char* type : {kFull, kSliding})
    if (rope->has(type)) rope->refuse(type, "parameters for each type of layer are not supported");
  return rope;
}

std::int64_t original_length(const LayerJob& job, const Config& rope) {
  const Config& config = job.config();
  if (config.has("original_max_position_embeddings"))
    return config.count({"original_max_position_embeddings"});
  if (rope.has("original_max_position_embeddings"))
    return rope.count({"original_max_position_embeddings"});
  return config.count({"max_position_embeddings"});
}

/// `factor`, or the ratio between the context length and the original one.
double factor_of(const LayerJob& job, const Config& rope) {
  if (const auto factor = rope.number("factor")) return *factor;
  return static_cast<double>(job.config().count({"max_position_embeddings"})) /
         static_cast<double>(original_length(job, rope));
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void set_yarn(LayerJob& job, const Config& rope) {
  const double factor = factor_of(job, rope);
  const double mscale = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
  job.set("rotary.scaling", "yarn");
  job.set("rotary.factor", Json{factor});
  job.set("rotary.original_length", Json{original_length(job, rope)});
  if (const auto fast = rope.number("beta_fast")) job.set("rotary.beta_fast", Json{*fast});
  if (const auto slow = rope.number("beta_slow")) job.set("rotary.beta_slow", Json{*slow});
  if (!rope.flag("truncate", true)) job.set("rotary.truncate", Json{false});
  if (const auto given = rope.number("attention_factor"))
    job.set("rotary.attention_factor", Json{*given});
  else if (mscale != 0 && all != 0)
    job.set("rotary.attention_factor",
            Json{yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all)});
}

void set_longrope(LayerJob& job, const Config& rope) {
  for (const char* key : {"short_mscale", "long_mscale"})
    if (rope.has(key)) rope.refuse(key, "is not supported");
  job.set("rotary.scaling", "longrope");
  job.set("rotary.factor", Json{factor_of(job, rope)});
  job.set("rotary.original_length", Json{original_length(job, rope)});
  for (const char* key : {"short_factor", "long_factor"}) {
    const std::vector<double> divisors = rope.numbers(key);
    if (divisors.empty()) rope.refuse(key, "expected a list of numbers, found none");
    job.set(std::string("rotary.") + key, Json{JsonFloats(divisors)});
  }
  if (const auto given = rope.number("attention_factor"))
    job.set("rotary.attention_factor", Json{*given});
}

std::string type_of(const Config& rope) {
  return rope.text("rope_type", rope.text("type", "default"));
}

void set_scaling(LayerJob& job, const Config& rope) {
  const std::string type = type_of(rope);
  if (rope.has("mrope_section")) rope.refuse("mrope_section", "is not supported");
  if (type == "default") return;
  if (type == "yarn") return set_yarn(job, rope);
  if (type == "longrope" || type == "su") return set_longrope(job, rope);
  if (type == "linear") {
    job.set("rotary.scaling", "linear");
  } else if (type == "dynamic") {
    job.set("rotary.scaling", "dynamic-ntk");
    job.set("rotary.original_length", Json{job.config().count({"max_position_embeddings"})});
  } else if (type == "llama3") {
    job.set("rotary.scaling", "llama3");
    job.set("rotary.original_length", Json{original_length(job, rope)});
    job.set("rotary.low_frequency_factor", Json{rope.number("low_freq_factor", 1)});
    job.set("rotary.high_frequency_factor", Json{rope.number("high_freq_factor", 4)});
  } else {
    rope.refuse("rope_type", "'" + printable(type) + "' is not supported");
  }
  if (!rope.has("factor")) rope.refuse("factor", "expected a finite number, found none");
  job.set("rotary.factor", Json{rope.number("factor", 1)});
}

constexpr const char* kFraction = "partial_rotary_factor";

/// How many of the D columns of a head are rotated. `otherwise` as RotaryDefaults::fraction.
std::int64_t rotary_columns(const LayerJob& job, const std::optional<Config>& rope,
                            std::optional<double> stated, std::optional<double> otherwise,
                            std::int64_t D) {
  const Config& owner = rope && rope->has(kFraction) ? *rope : job.config();
  const char* const key =
      !owner.has(kFraction) && owner.has("rotary_pct") ? "rotary_pct" : kFraction;
  const double fraction = stated.value_or(otherwise.value_or(1));
  const auto refuse = [&](const std::string& message) {
    owner.refuse(key, message + ", found " + to_json(Json{fraction}));
  };
  if (!(fraction > 0 && fraction <= 1)) refuse("expected a number > 0 and <= 1");
  const std::string type = rope ? type_of(*rope) : "default";
  if (!otherwise && fraction != 1 && type != "default")
    refuse("expected 1 with rope_type '" + printable(type) + "' of this model_type");
  if (!otherwise) return D;
  const auto columns = static_cast<std::int64_t>(static_cast<double>(D) * fraction);
  if (columns != D && (columns == 0 || columns % 2 != 0))
    refuse("expected an even number of the " + std::to_string(D) +
           " columns of a head (head_dim, or hidden_size / num_attention_heads)");
  return columns;
}

bool is_causal(const LayerJob& job) { return job.config().flag("is_causal", true); }

void set_window(LayerJob& job, std::int64_t keys) {
  job.set("window", Json{is_causal(job) ? JsonIntegers{keys - 1, 0} : JsonIntegers{keys, keys}});
}

}  // namespace

std::int64_t heads_of(const LayerJob& job) {
  return job.config().count({"num_attention_heads", "n_head", "n_heads", "num_heads"});
}

std::int64_t kv_heads_of(const LayerJob& job) {
  return job.config().count({"num_key_value_heads"}, heads_of(job));
}

void set_heads(LayerJob& job) {
  job.set("heads", Json{heads_of(job)});
  if (kv_heads_of(job) != heads_of(job)) job.set("kv_heads", Json{kv_heads_of(job)});
}

void set_causal(LayerJob& job) {
  if (is_causal(job)) job.set("causal", Json{true});
}

std::int64_t head_width_of(const LayerJob& job) {
  if (job.config().has("head_dim")) return job.config().count({"head_dim"});
  return job.config().count({"hidden_size", "n_embd", "d_model", "dim"}) / heads_of(job);
}

void set_rotary(LayerJob& job, const RotaryDefaults& defaults) {
  const Config& config = job.config();
  const std::optional<Config> rope = rope_parameters(job, defaults.layer_type);
  const auto stated = [&](const char* key) {
    std::optional<double> value;
    if (rope) value = rope->number(key);
    return value ? value : config.number(key);
  };
  const bool is_part = defaults.width > 0;
  const std::int64_t D = is_part ? defaults.width : head_width_of(job);
  const std::int64_t width = rotary_columns(job, rope, stated(kFraction), defaults.fraction, D);
  const double base = stated("rope_theta").value_or(defaults.base);
  job.set("rotary.kind", defaults.kind);
  if (is_part || width != D) job.set("rotary.width", Json{width});
  job.set("rotary.base", Json{base});
  if (rope) set_scaling(job, *rope);
}

std::string rope_type_of(const LayerJob& job) {
  const std::optional<Config> rope = rope_parameters(job, "");
  return rope ? type_of(*rope) : "default";
}

double yarn_scale_of(const LayerJob& job) {
  const std::optional<Config> rope = rope_parameters(job, "");
  if (!rope || type_of(*rope) == "default") return 1;
  const double all = rope->number("mscale_all_dim", 0);
  const double magnitude = all == 0 ? 1 : yarn_magnitude(factor_of(job, *rope), all);
  return magnitude * magnitude;
}

std::string layer_type_of(const LayerJob& job, const std::string& otherwise) {
  const std::vector<std::string> types = job.config().texts("layer_types");
  if (types.empty()) return otherwise;
  const auto index = static_cast<std::size_t>(job.layer());
  if (index >= types.size())
    job.config().refuse("layer_types", "has entries for only " + counted(types.size(), "layer"));
  if (types[index] == "attention") return kFull;  // of older versions of transformers
  if (types[index] != kFull && types[index] != kSliding)
    job.config().refuse("layer_types", "'" + printable(types[index]) +
                                           "' is not supported, only full_attention and "
                                           "sliding_attention");
  return types[index];
}

void check_layer_type(const LayerJob& job) {
  const Config& config = job.config();
  if (config.has("per_layer_config")) config.refuse("per_layer_config", "is not supported");
  const bool has_window = job.has("window");
  const std::string type = layer_type_of(job, has_window ? kSliding : kFull);
  if ((type == kSliding) != has_window)
    config.refuse("layer_types", type + " is not supported for this layer, which has " +
                                     (has_window ? "a window" : "no window"));
}

void set_window_of_all(LayerJob& job, std::optional<std::int64_t> otherwise) {
  if (job.config().has("sliding_window"))
    set_window(job, job.config().count({"sliding_window"}));
  else if (otherwise && !job.config().mentions("sliding_window"))
    set_window(job, *otherwise);
}

void set_window_of_type(LayerJob& job, const std::string& layer_type,
                        std::optional<std::int64_t> otherwise) {
  if (layer_type == kSliding) set_window_of_all(job, otherwise);
}

void set_qk_norm(LayerJob& job, const char* kind, double epsilon, const std::string& q,
                 const std::string& k) {
  job.set("qk_norm", kind);
  job.set("qk_norm_epsilon", Json{epsilon});
  job.set_tensor("q_norm", q);
  job.set_tensor("k_norm", k);
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
