#include "attn/model/architectures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "attn/base/text.h"
#include "attn/model/facts.h"
#include "attn/model/rotary_facts.h"

namespace attn {
namespace {

constexpr std::array<std::string_view, 4> kDecoder = {"model.", "", "language_model.model.",
                                                      "model.language_model."};

ArchitectureWeights separate(std::string_view q, std::string_view k, std::string_view v,
                             std::string_view output) {
  return {.projections = Projections::separate, .q = q, .k = k, .v = v, .output = output};
}

ArchitectureWeights fused(Projections projections, std::string_view qkv, std::string_view output) {
  return {.projections = projections, .q = qkv, .k = {}, .v = {}, .output = output};
}

ArchitectureNorm layer_norm(std::string_view name, const char* epsilon_key, double epsilon = 1e-5) {
  return {.name = name, .kind = "layer", .epsilon_key = epsilon_key, .epsilon = epsilon};
}

// Llama and its relatives: self_attn.q_proj and so on, RMSNorm, causal, rotary positions.

Architecture llama_like(std::string_view model_type, void (*set_facts)(LayerJob&)) {
  return {.model_type = model_type,
          .roots = kDecoder,
          .layer = "layers.#.",
          .weights = separate("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                              "self_attn.o_proj"),
          .norm = {.name = "input_layernorm"},
          .set_facts = set_facts};
}

/// Whose norms multiply by 1 + weight.
Architecture with_offset_norms(Architecture architecture) {
  architecture.norm_offset = 1;
  return architecture;
}

Architecture with_epsilon(double epsilon, Architecture architecture) {
  architecture.norm.epsilon = epsilon;
  return architecture;
}

Architecture with_layer_norm(Architecture architecture) {
  architecture.norm = layer_norm(architecture.norm.name, "layer_norm_eps");
  return architecture;
}

Architecture without_norm(Architecture architecture) {
  architecture.norm = {};
  return architecture;
}

Architecture with_fused_blocks(Architecture architecture) {
  architecture.weights = fused(Projections::blocks, "self_attn.qkv_proj", "self_attn.o_proj");
  return architecture;
}

void set_causal_rotary(LayerJob& job, const RotaryDefaults& defaults = {}) {
  set_grouped_heads(job);
  set_causal(job);
  set_rotary(job, defaults);
}

double rms_epsilon(const LayerJob& job, double otherwise = 1e-6) {
  return job.config().number("rms_norm_eps", otherwise);
}

void set_llama(LayerJob& job) { set_causal_rotary(job); }

void set_mistral(LayerJob& job) {
  constexpr std::int64_t kWindow = 4096;
  set_causal_rotary(job);
  if (job.config().has("layer_types"))
    set_window_of_type(job, layer_type_of(job, ""), kWindow);
  else
    set_window_of_all(job, kWindow);
}

void set_mixtral(LayerJob& job) {
  set_causal_rotary(job, {.base = 1e6});
  set_window_of_all(job, {});
}

void set_phi3(LayerJob& job) {
  const std::string type = rope_type_of(job);
  if (type != "default" && type != "longrope" && type != "su")
    job.config().refuse("rope_type", "'" + printable(type) +
                                         "' is not supported for this model_type, only longrope");
  // transformers has another default than max_position_embeddings.
  if (type != "default") job.config().count("original_max_position_embeddings");
  set_causal_rotary(job, {.fraction = 1});
  set_window_of_all(job, {});
}

/// Layers from max_window_layers on have windows if use_sliding_window is true.
void set_qwen2(LayerJob& job) {
  const Config& config = job.config();
  set_causal_rotary(job);
  const bool has_windows = config.flag("use_sliding_window", false);
  const bool slides =
      has_windows && static_cast<double>(job.layer()) >= config.number("max_window_layers", 28);
  const std::string type = layer_type_of(job, slides ? kSlidingAttention : kFullAttention);
  if (has_windows) set_window_of_type(job, type, 4096);
}

void set_qwen3(LayerJob& job) {
  set_qwen2(job);
  set_qk_norm(job, "rms", rms_epsilon(job));
}

void set_stablelm(LayerJob& job) {
  refuse_flag(job, "qk_layernorm");  // a tensor for each head
  set_causal_rotary(job, {.fraction = 0.25});
}

void set_olmo2(LayerJob& job) {
  set_causal_rotary(job);
  job.set("qk_norm_axis", "all");
  set_qk_norm(job, "rms", rms_epsilon(job, 1e-5));
}

void set_cohere(LayerJob& job) {
  set_causal_rotary(job, {.kind = "interleaved", .base = 500000});
  if (job.config().flag("use_qk_norm", false))
    set_qk_norm(job, "layer", job.config().number("layer_norm_eps", 1e-5));
}

void set_gemma(LayerJob& job) {
  refuse_flag(job, "use_bidirectional_attention");
  set_causal_rotary(job);
}

/// Every `period`th layer sees all keys, the others a window.
std::string alternating_type(const LayerJob& job, std::int64_t period) {
  return (job.layer() + 1) % period == 0 ? kFullAttention : kSlidingAttention;
}

void set_gemma2(LayerJob& job) {
  const Config& config = job.config();
  set_gemma(job);
  set_scale_of(job, config.number("query_pre_attn_scalar", 256));
  const double softcap =
      config.mentions("attn_logit_softcapping") ? config.number("attn_logit_softcapping", 0) : 50;
  if (softcap > 0) job.set("softcap", Json{softcap});
  set_window_of_type(job, layer_type_of(job, alternating_type(job, 2)), 4096);
}

void set_gemma3(LayerJob& job) {
  const Config& config = job.config();
  refuse_flag(job, "use_bidirectional_attention");
  if (config.has("attn_logit_softcapping"))
    config.refuse("attn_logit_softcapping", "is not supported");
  const std::string type =
      layer_type_of(job, alternating_type(job, config.count("sliding_window_pattern", 6)));
  set_grouped_heads(job);
  set_causal(job);
  if (type == kFullAttention)
    set_rotary(job, {.base = 1e6, .layer_type = type});
  else
    set_rotary(job, {.base_key = "rope_local_base_freq", .layer_type = type, .is_scaled = false});
  set_scale_of(job, config.number("query_pre_attn_scalar", 256));
  set_window_of_type(job, type, 4096);
  set_qk_norm(job, "rms", rms_epsilon(job));
}

void set_gpt_oss(LayerJob& job) {
  const Config& config = job.config();
  const std::optional<Config> scaling = config.object("rope_scaling");
  if ((!scaling || scaling->is_empty()) && !config.has("rope_parameters"))
    config.refuse("rope_parameters", "expected an object here or in rope_scaling, found none");
  set_causal_rotary(job, {.base = 150000});
  set_window_of_type(job, layer_type_of(job, alternating_type(job, 2)), 128);
  job.set_tensor("sinks", "self_attn.sinks");
}

// DeepSeek-V2 and V3: multi-head latent attention.

void set_deepseek(LayerJob& job, const char* rotary_kind) {
  const std::int64_t rotary_width = job.config().count("qk_rope_head_dim");
  set_heads(job);
  set_causal(job);
  set_rotary(job, {.kind = rotary_kind, .width = rotary_width});
  const auto head_width =
      static_cast<double>(job.config().count("qk_nope_head_dim") + rotary_width);
  if (const double factor = yarn_scale_of(job); factor != 1)
    job.set("scale", Json{factor / std::sqrt(head_width)});
}

void set_deepseek_v2(LayerJob& job) { set_deepseek(job, "interleaved"); }

void set_deepseek_v3(LayerJob& job) {
  set_deepseek(job, job.config().flag("rope_interleave", true) ? "interleaved" : "half");
}

Architecture with_latent_attention(Architecture architecture) {
  architecture.weights =
      fused(Projections::latent, "self_attn.kv_a_proj_with_mqa", "self_attn.o_proj");
  return architecture;
}

/// `norm` is that in front of the attention; "": none.
void set_latent_projections(const std::string& norm, double epsilon, LayerJob& job) {
  constexpr double kLatentEpsilon = 1e-6;  // whatever rms_norm_eps is
  const std::string attention = "self_attn.";
  const auto width = [&](const char* key) {
    return static_cast<std::size_t>(job.config().count(key));
  };
  const auto tensor = [&](const char* key, const std::string& name) {
    return job.required_tensor(key, attention + name);
  };
  const auto bias = [&](const char* key, const std::string& name) {
    return job.has_tensor(attention + name) ? tensor(key, name) : "";
  };
  LatentAttention latent{.checkpoint = job.checkpoint(),
                         .input_epsilon = epsilon,
                         .latent_epsilon = kLatentEpsilon,
                         .kv_down = tensor("K", "kv_a_proj_with_mqa.weight"),
                         .kv_down_bias = bias("K", "kv_a_proj_with_mqa.bias"),
                         .kv_norm = tensor("K", "kv_a_layernorm.weight"),
                         .kv_up = tensor("K", "kv_b_proj.weight"),
                         .heads = width("num_attention_heads"),
                         .plain_width = width("qk_nope_head_dim"),
                         .rotary_width = width("qk_rope_head_dim"),
                         .value_width = width("v_head_dim"),
                         .latent_width = width("kv_lora_rank")};
  std::string first = "computed by ";
  if (!norm.empty()) {
    latent.input_norm = job.required_tensor("Q", norm + ".weight");
    first += norm + ", ";
  }
  if (job.config().has("q_lora_rank") || !job.config().mentions("q_lora_rank")) {
    latent.q_down = tensor("Q", "q_a_proj.weight");
    latent.q_down_bias = bias("Q", "q_a_proj.bias");
    latent.q_norm = tensor("Q", "q_a_layernorm.weight");
    latent.q_up = tensor("Q", "q_b_proj.weight");
    job.set("Q", Json{first + "q_a_proj, q_a_layernorm, q_b_proj"});
  } else {
    latent.q_up = tensor("Q", "q_proj.weight");
    job.set("Q", Json{first + "q_proj"});
  }
  const Json keys{first + "kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj"};
  job.set("K", keys);
  job.set("V", keys);
  job.set_latent(std::move(latent));
}

// GPT-2 and other decoders with LayerNorm.

constexpr std::array<std::string_view, 2> kTransformer = {"transformer.", ""};
constexpr std::array<std::string_view, 2> kGptNeoX = {"gpt_neox.", ""};
constexpr const char* kShortLayersKeys[] = {"num_hidden_layers", "n_layer"};
constexpr const char* kShortHeadsKeys[] = {"num_attention_heads", "n_head"};
constexpr const char* kPluralLayersKeys[] = {"num_hidden_layers", "n_layers"};
constexpr const char* kPluralHeadsKeys[] = {"num_attention_heads", "n_heads"};
constexpr std::array<std::string_view, 3> kOpt = {"model.decoder.", "decoder.", ""};

void set_causal_heads(LayerJob& job) {
  set_heads(job);
  set_causal(job);
}

void set_gpt2(LayerJob& job) {
  const Config& config = job.config();
  set_causal_heads(job);
  double scale = 1;
  if (config.flag("scale_attn_weights", true))
    scale /= std::sqrt(static_cast<double>(head_width_of(job)));
  if (config.flag("scale_attn_by_inverse_layer_idx", false))
    scale /= static_cast<double>(job.layer() + 1);
  job.set("scale", Json{scale});
}

void set_gpt_neox(LayerJob& job) {
  set_causal_heads(job);
  set_rotary(job, {.base_key = "rotary_emb_base", .fraction = 0.25, .fraction_key = "rotary_pct"});
}

/// The key/value heads of Falcon: one for all heads with multi_query.
std::int64_t falcon_kv_heads(const LayerJob& job) {
  const Config& config = job.config();
  const bool is_new = config.flag("new_decoder_architecture", false);
  if (!is_new && config.flag("multi_query", true)) return 1;
  return is_new ? config.count("num_kv_heads", job.heads()) : job.heads();
}

void set_falcon(LayerJob& job) {
  refuse_flag(job, "alibi");  // transformers rounds it to bfloat16
  set_heads(job);
  if (falcon_kv_heads(job) != job.heads()) job.set("kv_heads", Json{falcon_kv_heads(job)});
  set_causal(job);
  set_rotary(job, {});
}

/// The bias of a key depends on its position only, so that causal attention is that of alibi.
void set_alibi_heads(LayerJob& job) {
  refuse_flag(job, "is_causal", false);
  set_causal_heads(job);
  job.set("alibi", Json{true});
}

void set_mpt(LayerJob& job) {
  set_alibi_heads(job);
  const std::optional<Config> attention = job.config().object("attn_config");
  if (!attention) return;
  if (attention->text("attn_type", "multihead_attention") != "multihead_attention")
    attention->refuse("attn_type", "expected multihead_attention");
  for (const char* key : {"qk_ln", "prefix_lm"})
    if (attention->flag(key, false)) attention->refuse(key, "true is not supported");
  if (!attention->flag("alibi", true)) attention->refuse("alibi", "false is not supported");
  if (attention->number("alibi_bias_max", 8) != 8)
    attention->refuse("alibi_bias_max", "only 8 is supported");
  if (const auto clip = attention->number("clip_qkv")) job.set("clip_qkv", Json{*clip});
  if (const auto scale = attention->number("softmax_scale")) job.set("scale", Json{*scale});
}

// BERT and other encoders.

constexpr std::array<std::string_view, 2> kBert = {"bert.", ""};
constexpr std::array<std::string_view, 2> kRoberta = {"roberta.", ""};
constexpr std::array<std::string_view, 2> kElectra = {"electra.", ""};
constexpr std::array<std::string_view, 2> kDistilBert = {"distilbert.", ""};
constexpr std::array<std::string_view, 2> kViT = {"vit.", ""};
constexpr std::array<std::string_view, 2> kModel = {"model.", ""};

void set_bert(LayerJob& job) {
  const Config& config = job.config();
  if (config.text("position_embedding_type", "absolute") != "absolute")
    config.refuse("position_embedding_type", "only absolute is supported");
  set_heads(job);
  if (config.flag("is_decoder", false)) set_causal(job);
}

/// Of a model without a decoder.
void set_encoder(LayerJob& job) {
  refuse_flag(job, "is_decoder");
  set_heads(job);
}

void set_modernbert(LayerJob& job) {
  const Config& config = job.config();
  const bool is_full = job.layer() % config.count("global_attn_every_n_layers", 3) == 0;
  const std::string type = layer_type_of(job, is_full ? kFullAttention : kSlidingAttention);
  set_encoder(job);
  const bool slides = type == kSlidingAttention;
  set_rotary(job, {.base = slides ? 10000.0 : 160000.0,
                   .base_key = slides ? "local_rope_theta" : "global_rope_theta",
                   .layer_type = type});
  if (!slides) return;
  const std::int64_t half =
      config.count("sliding_window", config.count("local_attention", 128) / 2);
  job.set("window", Json{JsonIntegers{half, half}});
}

// Encoders with decoders.

constexpr std::array<std::string_view, 1> kNothing = {""};
constexpr std::array<std::string_view, 2> kBart = {"model.", ""};
constexpr const char* kT5HeadsKeys[] = {"num_attention_heads", "num_heads"};
constexpr const char* kT5LayersKeys[] = {"num_hidden_layers", "num_layers"};
constexpr const char* kT5DecoderLayersKeys[] = {"num_decoder_layers", "num_layers"};
constexpr const char* kBartLayersKeys[] = {"num_hidden_layers", "encoder_layers"};
constexpr const char* kBartHeadsKeys[] = {"num_attention_heads", "encoder_attention_heads"};
constexpr const char* kWhisperHeadsKeys[] = {"num_key_value_heads", "num_attention_heads",
                                             "encoder_attention_heads"};
constexpr const char* kBartDecoderLayersKeys[] = {"decoder_layers"};
constexpr const char* kBartDecoderHeadsKeys[] = {"decoder_attention_heads"};

void set_t5_cross(LayerJob& job) {
  set_heads(job);
  job.set("scale", "none");
}

std::int64_t t5_max_distance(const LayerJob& job) {
  return job.config().count("relative_attention_max_distance", 128);
}

/// Errors: data, if the numbers of buckets and of distances that the configuration states do not
/// fit the table of biases.
void check_t5_buckets(const LayerJob& job, const std::string& table, bool is_both) {
  constexpr const char* kBuckets = "relative_attention_num_buckets";
  const Shape shape = job.shape_of_shared(table);
  if (shape.size() != 2) return;  // reported as an error of relative_bias
  const Config& config = job.config();
  const auto buckets = static_cast<std::int64_t>(shape[0]);
  if (const std::int64_t stated = config.count(kBuckets, buckets); stated != buckets)
    config.refuse(kBuckets, "is " + std::to_string(stated) + ", but " + printable(table) + " is " +
                                to_string(shape));
  const std::int64_t single = buckets / (is_both ? 4 : 2);
  if (const std::int64_t most = t5_max_distance(job); most <= single)
    config.refuse("relative_attention_max_distance",
                  "expected more than " + std::to_string(single) + ", with " +
                      std::to_string(buckets) + " buckets (" + kBuckets + "), found " +
                      std::to_string(most));
}

void set_t5(LayerJob& job, const char* direction) {
  const std::string stack = direction == std::string("both") ? "encoder" : "decoder";
  set_t5_cross(job);
  const std::string table =
      job.root() + stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  job.set_shared_tensor("relative_bias", table);
  check_t5_buckets(job, table, stack == "encoder");
  job.set("relative.direction", direction);
  job.set("relative.max_distance", Json{t5_max_distance(job)});
}

void set_t5_encoder(LayerJob& job) { set_t5(job, "both"); }

void set_t5_decoder(LayerJob& job) {
  set_causal(job);
  set_t5(job, "past");
}

/// num_key_value_heads is another name of num_attention_heads; transformers uses the last in the
/// file.
void set_whisper_encoder(LayerJob& job) {
  const Config& config = job.config();
  if (config.count("num_attention_heads", job.heads()) != job.heads())
    config.refuse("num_key_value_heads", "differs from num_attention_heads");
  set_heads(job);
}

/// The three stacks of T5.
std::vector<Architecture> t5_like(std::string_view model_type) {
  Architecture encoder{.model_type = model_type,
                       .stack = "encoder",
                       .layers_keys = kT5LayersKeys,
                       .heads_keys = kT5HeadsKeys,
                       .roots = kNothing,
                       .layer = "encoder.block.#.layer.0.",
                       .weights = separate("SelfAttention.q", "SelfAttention.k", "SelfAttention.v",
                                           "SelfAttention.o"),
                       .norm = {.name = "layer_norm", .epsilon_key = "layer_norm_epsilon"},
                       .set_facts = set_t5_encoder};
  Architecture decoder = encoder;
  decoder.stack = "decoder";
  decoder.layers_keys = kT5DecoderLayersKeys;
  decoder.layer = "decoder.block.#.layer.0.";
  decoder.set_facts = set_t5_decoder;
  Architecture cross = decoder;
  cross.stack = "cross";
  cross.layer = "decoder.block.#.layer.1.";
  cross.weights =
      separate("EncDecAttention.q", "EncDecAttention.k", "EncDecAttention.v", "EncDecAttention.o");
  cross.set_facts = set_t5_cross;
  return {encoder, decoder, cross};
}

/// The three stacks of BART, which normalises after the attention, and of Whisper, which does so
/// before it.
std::vector<Architecture> bart_like(std::string_view model_type, bool is_whisper) {
  Architecture encoder{.model_type = model_type,
                       .stack = "encoder",
                       .layers_keys = kBartLayersKeys,
                       .heads_keys = is_whisper ? CountKeys(kWhisperHeadsKeys) : kBartHeadsKeys,
                       .roots = kBart,
                       .layer = "encoder.layers.#.",
                       .weights = separate("self_attn.q_proj", "self_attn.k_proj",
                                           "self_attn.v_proj", "self_attn.out_proj"),
                       .norm = layer_norm(is_whisper ? "self_attn_layer_norm" : "", nullptr),
                       .set_facts = is_whisper ? set_whisper_encoder : set_heads};
  Architecture decoder = encoder;
  decoder.stack = "decoder";
  decoder.layers_keys = kBartDecoderLayersKeys;
  decoder.heads_keys = kBartDecoderHeadsKeys;
  decoder.layer = "decoder.layers.#.";
  decoder.set_facts = set_causal_heads;
  Architecture cross = decoder;
  cross.stack = "cross";
  cross.weights = separate("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj",
                           "encoder_attn.out_proj");
  cross.norm.name = is_whisper ? "encoder_attn_layer_norm" : "";
  cross.set_facts = set_heads;
  return {encoder, decoder, cross};
}

Architecture bert_like(std::string_view model_type, std::span<const std::string_view> roots) {
  return {.model_type = model_type,
          .roots = roots,
          .layer = "encoder.layer.#.",
          .weights = separate("attention.self.query", "attention.self.key", "attention.self.value",
                              "attention.output.dense"),
          .set_facts = set_bert};
}

// Queries, keys and values of fused projections.

std::string rows(std::int64_t first, std::int64_t last) {
  return "[" + std::to_string(first) + ":" + std::to_string(last) + "]";
}

/// "[0/3]", of the rows, or "[0/3 in 12]".
std::string third_of_rows(std::int64_t part, std::int64_t groups = 1) {
  return "[" + std::to_string(part) + "/3" + (groups > 1 ? " in " + std::to_string(groups) : "") +
         "]";
}

/// Parts of q: H*D of queries, then G*D of keys and of values.
void set_blocks(const std::string& name, std::int64_t kv_heads, LayerJob& job) {
  const std::int64_t D = head_width_of(job), queries = job.heads() * D, keys = kv_heads * D;
  const auto set = [&](const char* letter, std::int64_t first, std::int64_t count) {
    job.set_linear(letter, name, rows(first, first + count), rows(first, first + count));
  };
  set("Q", 0, queries);
  set("K", queries, keys);
  set("V", queries + keys, keys);
}

/// Thirds in each of `groups` groups of rows.
void set_thirds(const std::string& name, std::int64_t groups, LayerJob& job) {
  std::int64_t part = 0;
  for (const char* letter : {"Q", "K", "V"}) {
    const std::string third = third_of_rows(part++, groups);
    job.set_linear(letter, name, third, third);
  }
}

/// Columns of an (in, out) matrix.
void set_columns(const std::string& name, LayerJob& job) {
  std::int64_t part = 0;
  for (const char* letter : {"Q", "K", "V"}) {
    const std::string third = third_of_rows(part++);
    job.set_linear(letter, name, "[:, " + third.substr(1), third);
  }
}

/// In each of G groups, H/G heads of queries, one of keys and one of values.
void set_falcon_projections(const std::string& name, LayerJob& job) {
  const std::int64_t G = falcon_kv_heads(job), H = job.heads();
  if (G == H) return set_thirds(name, H, job);
  if (!job.config().flag("new_decoder_architecture", false)) return set_blocks(name, 1, job);
  if (H % G != 0) job.config().refuse("num_kv_heads", "expected a divisor of num_attention_heads");
  const std::int64_t count = H / G;
  const std::string parts =
      "/" + std::to_string(count + 2) + (G > 1 ? " in " + std::to_string(G) : "") + "]";
  const auto set = [&](const char* letter, const std::string& which) {
    job.set_linear(letter, name, "[" + which + parts, "[" + which + parts);
  };
  set("Q", "0:" + std::to_string(count));
  set("K", std::to_string(count));
  set("V", std::to_string(count + 1));
}

void set_projections(const Architecture& architecture, LayerJob& job) {
  const auto q = std::string(architecture.weights.q);
  switch (architecture.weights.projections) {
    case Projections::separate:
      job.set_linear("Q", q);
      job.set_linear("K", std::string(architecture.weights.k));
      job.set_linear("V", std::string(architecture.weights.v));
      return;
    case Projections::blocks:
      return set_blocks(q, kv_heads_of(job), job);
    case Projections::thirds:
      return set_thirds(q, 1, job);
    case Projections::columns:
      return set_columns(q, job);
    case Projections::per_head:
      return set_thirds(q, job.heads(), job);
    case Projections::falcon:
      return set_falcon_projections(q, job);
    case Projections::latent:
      break;  // set_latent_projections()
  }
}

/// Sets the width of the hidden states. Errors: data, if the weights of the queries do not have the
/// widths that the configuration states.
void check_widths(const Architecture& architecture, LayerJob& job) {
  const Config& config = job.config();
  const std::string name = std::string(architecture.weights.q) + ".weight";
  job.required_tensor("W_Q", name);  // before its shape: quantised weights have others
  const Shape shape = job.shape_of(name);
  if (shape.size() != 2) return;  // reported as an error of W_Q
  const bool is_in_out = architecture.weights.projections == Projections::columns;
  const std::size_t width = shape[is_in_out ? 0 : 1], outputs = shape[is_in_out ? 1 : 0];
  job.set_hidden_width(width);
  const auto refuse = [&](const char* key, std::int64_t value, const std::string& found) {
    config.refuse(key, "is " + std::to_string(value) + ", but " + printable(job.full_name(name)) +
                           " is " + to_string(shape) + found);
  };
  if (const char* const key = width_key_of(config);
      key != nullptr && config.count(key) != static_cast<std::int64_t>(width))
    refuse(key, config.count(key), "");
  if (!config.has("head_dim") || architecture.weights.projections != Projections::separate) return;
  const std::int64_t heads = job.heads(), head_width = config.count("head_dim");
  std::int64_t expected = 0;
  if (__builtin_mul_overflow(heads, head_width, &expected) ||
      expected != static_cast<std::int64_t>(outputs))
    refuse("head_dim", head_width, ", for " + counted(static_cast<std::size_t>(heads), "head"));
}

/// The name of the norm in front of the attention; "" if there is none.
std::string norm_of(const Architecture& architecture, const LayerJob& job) {
  const Config& config = job.config();
  if (architecture.model_type == "opt" && !config.flag("do_layer_norm_before", true)) return "";
  if (architecture.model_type == "modernbert" && job.layer() == 0) return "";
  if (architecture.model_type == "falcon" && job.has_tensor("ln_attn.weight")) return "ln_attn";
  return std::string(architecture.norm.name);
}

bool has_norm_weights(const Architecture& architecture, const LayerJob& job) {
  const char* const key = architecture.affine_key;
  return key == nullptr || job.config().flag(key, true);
}

std::vector<Architecture> single_stacks() {
  return {
      llama_like("llama", set_llama),
      llama_like("mistral", set_mistral),
      with_epsilon(1e-5, llama_like("mixtral", set_mixtral)),
      llama_like("qwen2", set_qwen2),
      llama_like("qwen3", set_qwen3),
      with_epsilon(1e-5, with_fused_blocks(llama_like("phi3", set_phi3))),
      with_layer_norm(llama_like("stablelm", set_stablelm)),
      without_norm(llama_like("olmo2", set_olmo2)),
      with_layer_norm(llama_like("cohere", set_cohere)),
      with_offset_norms(llama_like("gemma", set_gemma)),
      with_offset_norms(llama_like("gemma2", set_gemma2)),
      with_offset_norms(llama_like("gemma3", set_gemma3)),
      with_offset_norms(llama_like("gemma3_text", set_gemma3)),
      with_epsilon(1e-5, llama_like("gpt_oss", set_gpt_oss)),
      with_latent_attention(llama_like("deepseek_v2", set_deepseek_v2)),
      with_latent_attention(llama_like("deepseek_v3", set_deepseek_v3)),
      bert_like("bert", kBert),
      bert_like("roberta", kRoberta),
      bert_like("xlm-roberta", kRoberta),
      bert_like("camembert", kRoberta),
      bert_like("electra", kElectra),
      {.model_type = "distilbert",
       .layers_keys = kPluralLayersKeys,
       .heads_keys = kPluralHeadsKeys,
       .roots = kDistilBert,
       .layer = "transformer.layer.#.attention.",
       .weights = separate("q_lin", "k_lin", "v_lin", "out_lin"),
       .set_facts = set_encoder},
      {.model_type = "vit",
       .roots = kViT,
       .layer = "encoder.layer.#.",
       .weights = separate("attention.attention.query", "attention.attention.key",
                           "attention.attention.value", "attention.output.dense"),
       .norm = layer_norm("layernorm_before", "layer_norm_eps", 1e-12),
       .set_facts = set_encoder},
      {.model_type = "modernbert",
       .roots = kModel,
       .layer = "layers.#.",
       .weights = fused(Projections::thirds, "attn.Wqkv", "attn.Wo"),
       .norm = layer_norm("attn_norm", "norm_eps"),
       .set_facts = set_modernbert},
      {.model_type = "gpt2",
       .layers_keys = kShortLayersKeys,
       .heads_keys = kShortHeadsKeys,
       .roots = kTransformer,
       .layer = "h.#.",
       .weights = fused(Projections::columns, "attn.c_attn", "attn.c_proj"),
       .norm = layer_norm("ln_1", "layer_norm_epsilon"),
       .set_facts = set_gpt2},
      {.model_type = "opt",
       .roots = kOpt,
       .layer = "layers.#.",
       .weights = separate("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.out_proj"),
       .norm = layer_norm("self_attn_layer_norm", nullptr),
       .affine_key = "layer_norm_elementwise_affine",
       .set_facts = set_causal_heads},
      {.model_type = "gpt_neox",
       .roots = kGptNeoX,
       .layer = "layers.#.",
       .weights = fused(Projections::per_head, "attention.query_key_value", "attention.dense"),
       .norm = layer_norm("input_layernorm", "layer_norm_eps"),
       .set_facts = set_gpt_neox},
      {.model_type = "falcon",
       .roots = kTransformer,
       .layer = "h.#.",
       .weights =
           fused(Projections::falcon, "self_attention.query_key_value", "self_attention.dense"),
       .norm = layer_norm("input_layernorm", "layer_norm_epsilon"),
       .set_facts = set_falcon},
      {.model_type = "bloom",
       .layers_keys = kShortLayersKeys,
       .heads_keys = kShortHeadsKeys,
       .roots = kTransformer,
       .layer = "h.#.",
       .weights =
           fused(Projections::per_head, "self_attention.query_key_value", "self_attention.dense"),
       .norm = layer_norm("input_layernorm", "layer_norm_epsilon"),
       .set_facts = set_alibi_heads},
      {.model_type = "mpt",
       .layers_keys = kPluralLayersKeys,
       .heads_keys = kPluralHeadsKeys,
       .roots = kTransformer,
       .layer = "blocks.#.",
       .weights = fused(Projections::thirds, "attn.Wqkv", "attn.out_proj"),
       .norm = layer_norm("norm_1", "layer_norm_epsilon"),
       .set_facts = set_mpt},
  };
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table = [] {
    std::vector<Architecture> rows = single_stacks();
    for (const auto& stacks :
         {t5_like("t5"), t5_like("mt5"), bart_like("bart", false), bart_like("whisper", true)})
      rows.insert(rows.end(), stacks.begin(), stacks.end());
    return rows;
  }();
  return table;
}

std::vector<const Architecture*> stacks_of(const std::string& model_type) {
  std::vector<const Architecture*> stacks;
  for (const Architecture& architecture : architectures())
    if (architecture.model_type == model_type) stacks.push_back(&architecture);
  return stacks;
}

void set_layer(const Architecture& architecture, bool with_norm, LayerJob& job) {
  const std::string norm = with_norm ? norm_of(architecture, job) : "";
  const char* key = architecture.norm.epsilon_key;
  const double otherwise = architecture.norm.epsilon;
  const double epsilon = key == nullptr ? otherwise : job.config().number(key, otherwise);
  const bool is_latent = architecture.weights.projections == Projections::latent;
  if (!norm.empty() && !is_latent) {
    job.set("input_norm", architecture.norm.kind);
    job.set("input_norm_epsilon", Json{epsilon});
    if (has_norm_weights(architecture, job)) {
      job.set_tensor("input_norm_weight", norm + ".weight");
      if (job.has_tensor(norm + ".bias")) job.set_tensor("input_norm_bias", norm + ".bias");
    }
  }
  job.set_head_count(job.config().count(architecture.heads_keys));
  job.set("weights_layout",
          architecture.weights.projections == Projections::columns ? "in-out" : "out-in");
  check_widths(architecture, job);
  set_projections(architecture, job);
  if (is_latent) set_latent_projections(norm, epsilon, job);
  job.set_linear("O", std::string(architecture.weights.output));
  architecture.set_facts(job);
  check_layer_type(job);
  if (architecture.norm_offset != 0 && (job.has("input_norm_weight") || job.has("q_norm")))
    job.set("norm_offset", Json{architecture.norm_offset});
}

}  // namespace attn
