#include "attn/model/rotary_facts.h"

#include <cmath>
#include <vector>

#include "attn/base/text.h"
#include "attn/model/facts.h"

namespace attn {
namespace {

constexpr const char* kFraction = "partial_rotary_factor";
constexpr const char* kOriginalLength = "original_max_position_embeddings";

/// The object of rotary positions of a layer.
struct Rope {
  const Config& model;
  Config own;
  bool is_of_type;  ///< of one type of layers

  std::string type() const { return own.text("rope_type", own.text("type", "default")); }

  std::int64_t original_length() const {
    if (!is_of_type && model.has(kOriginalLength)) return model.count(kOriginalLength);
    if (own.has(kOriginalLength)) return own.count(kOriginalLength);
    return model.count("max_position_embeddings");
  }

  /// `factor`, or the ratio between the context length and the original one.
  double factor() const {
    if (const auto factor = own.number("factor")) return *factor;
    return static_cast<double>(model.count("max_position_embeddings")) /
           static_cast<double>(original_length());
  }
};

bool has_objects_of_types(const Config& rope) {
  return rope.mentions(kFullAttention) || rope.mentions(kSlidingAttention);
}

std::optional<Rope> rope_of(const LayerJob& job, const RotaryDefaults& defaults) {
  const Config& config = job.config();
  std::optional<Config> scaling = config.object("rope_scaling");
  if (scaling && scaling->is_empty()) scaling.reset();
  std::optional<Config> rope = config.object("rope_parameters");
  if (defaults.layer_type.empty()) {
    if (scaling) rope = scaling;
    if (!rope) return std::nullopt;
    if (has_objects_of_types(*rope))
      rope->refuse(rope->has(kFullAttention) ? kFullAttention : kSlidingAttention,
                   "parameters for each type of layer are not supported");
    return Rope{config, *rope, false};
  }
  if (scaling && rope) config.refuse("rope_scaling", "is not supported with rope_parameters");
  if (rope && !rope->is_empty()) {
    if (!has_objects_of_types(*rope))
      config.refuse("rope_parameters", "expected objects full_attention and sliding_attention");
    rope = rope->object(defaults.layer_type.c_str());
  } else {
    rope = defaults.is_scaled ? scaling : std::nullopt;
    // transformers 5 ignores it here, and older versions do not.
    if (rope && !rope->has("rope_type") && rope->text("type", "default") != "default")
      rope->refuse("type", "is not supported without rope_type for this model_type");
  }
  if (!rope) return std::nullopt;
  return Rope{config, *rope, true};
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void set_yarn(LayerJob& job, const Rope& rope) {
  const Config& own = rope.own;
  const double factor = rope.factor();
  const double mscale = own.number("mscale", 0), all = own.number("mscale_all_dim", 0);
  job.set("rotary.scaling", "yarn");
  job.set("rotary.factor", Json{factor});
  job.set("rotary.original_length", Json{rope.original_length()});
  if (const auto fast = own.number("beta_fast")) job.set("rotary.beta_fast", Json{*fast});
  if (const auto slow = own.number("beta_slow")) job.set("rotary.beta_slow", Json{*slow});
  if (!own.flag("truncate", true)) {
    // transformers ignores it here.
    if (rope.is_of_type) own.refuse("truncate", "false is not supported for one type of layer");
    job.set("rotary.truncate", Json{false});
  }
  if (const auto given = own.number("attention_factor"))
    job.set("rotary.attention_factor", Json{*given});
  else if (mscale != 0 && all != 0)
    job.set("rotary.attention_factor",
            Json{yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all)});
  else if (factor < 1)
    job.set("rotary.attention_factor", Json{yarn_magnitude(factor, 1)});
}

void set_longrope(LayerJob& job, const Rope& rope) {
  const Config& own = rope.own;
  for (const char* key : {"short_mscale", "long_mscale"})
    if (own.has(key)) own.refuse(key, "is not supported");
  job.set("rotary.scaling", "longrope");
  job.set("rotary.factor", Json{rope.factor()});
  job.set("rotary.original_length", Json{rope.original_length()});
  for (const char* key : {"short_factor", "long_factor"}) {
    const std::vector<double> divisors = own.numbers(key);
    if (divisors.empty()) own.refuse(key, "expected a list of numbers, found none");
    job.set(std::string("rotary.") + key, Json{JsonFloats(divisors)});
  }
  if (const auto given = own.number("attention_factor"))
    job.set("rotary.attention_factor", Json{*given});
}

void set_scaling(LayerJob& job, const Rope& rope) {
  const Config& own = rope.own;
  const std::string type = rope.type();
  if (own.has("mrope_section")) own.refuse("mrope_section", "is not supported");
  if (type == "default") return;
  if (type == "yarn") return set_yarn(job, rope);
  if (type == "longrope" || type == "su") return set_longrope(job, rope);
  if (type == "linear") {
    job.set("rotary.scaling", "linear");
  } else if (type == "dynamic") {
    job.set("rotary.scaling", "dynamic-ntk");
    job.set("rotary.original_length", Json{job.config().count("max_position_embeddings")});
  } else if (type == "llama3") {
    job.set("rotary.scaling", "llama3");
    job.set("rotary.original_length", Json{rope.original_length()});
    job.set("rotary.low_frequency_factor", Json{own.number("low_freq_factor", 1)});
    job.set("rotary.high_frequency_factor", Json{own.number("high_freq_factor", 4)});
  } else {
    own.refuse("rope_type", "'" + printable(type) + "' is not supported");
  }
  if (!own.has("factor")) own.refuse("factor", "expected a finite number, found none");
  job.set("rotary.factor", Json{own.number("factor", 1)});
}

/// How many of the D columns of a head are rotated.
std::int64_t rotary_columns(const LayerJob& job, const std::optional<Rope>& rope,
                            const RotaryDefaults& defaults, std::int64_t D) {
  const bool has_own = rope && rope->own.has(kFraction);
  const Config& owner = has_own ? rope->own : job.config();
  const char* const key = has_own ? kFraction : defaults.fraction_key;
  const double fraction = owner.number(key, defaults.fraction.value_or(1));
  const auto refuse = [&](const std::string& message) {
    owner.refuse(key, message + ", found " + to_json(Json{fraction}));
  };
  if (!(fraction > 0 && fraction <= 1)) refuse("expected a number > 0 and <= 1");
  const std::string type = rope ? rope->type() : "default";
  if (!defaults.fraction && fraction != 1 && type != "default")
    refuse("expected 1 with rope_type '" + printable(type) + "' of this model_type");
  if (!defaults.fraction) return D;
  const auto columns = static_cast<std::int64_t>(static_cast<double>(D) * fraction);
  if (columns != D && (columns == 0 || columns % 2 != 0))
    refuse("expected an even number of the " + std::to_string(D) +
           " columns of a head (head_dim, or hidden_size / num_attention_heads)");
  return columns;
}

}  // namespace

void set_rotary(LayerJob& job, const RotaryDefaults& defaults) {
  const std::optional<Rope> rope = rope_of(job, defaults);
  const bool is_part = defaults.width > 0;
  const std::int64_t D = is_part ? defaults.width : head_width_of(job);
  const std::int64_t width = rotary_columns(job, rope, defaults, D);
  std::optional<double> base = rope ? rope->own.number("rope_theta") : std::nullopt;
  if (!base) base = job.config().number(defaults.base_key, defaults.base);
  job.set("rotary.kind", defaults.kind);
  if (is_part || width != D) job.set("rotary.width", Json{width});
  job.set("rotary.base", Json{*base});
  if (rope) set_scaling(job, *rope);
}

std::string rope_type_of(const LayerJob& job) {
  const std::optional<Rope> rope = rope_of(job, {});
  return rope ? rope->type() : "default";
}

double yarn_scale_of(const LayerJob& job) {
  const std::optional<Rope> rope = rope_of(job, {});
  if (!rope || rope->type() == "default") return 1;
  const double all = rope->own.number("mscale_all_dim", 0);
  const double magnitude = all == 0 ? 1 : yarn_magnitude(rope->factor(), all);
  return magnitude * magnitude;
}

}  // namespace attn
