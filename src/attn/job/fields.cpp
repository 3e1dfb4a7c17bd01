#include "attn/job/fields.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/moved.h"
#include "attn/base/name.h"
#include "attn/base/text.h"
#include "attn/cache/latent.h"
#include "attn/job/conventions.h"
#include "attn/job/field_value.h"
#include "attn/job/random_spec.h"
#include "attn/problem/input_table.h"

namespace attn {
namespace {

using Requirements = std::vector<KeyRequirement>;

/// A text of the table: a key, the name of an input or a word. Not made of a std::string, whose
/// text the requirements would outlive.
struct TableText {
  TableText(const char* option) : text(option) {}
  TableText(Input input) : text(name_of(input)) {}
  std::string_view text;
};

/// Keeps the texts until the program ends, as job_fields() are kept.
KeyRequirement::Texts texts(std::initializer_list<TableText> keys) {
  auto* const all = new std::string_view[keys.size()];
  std::transform(keys.begin(), keys.end(), all, [](const TableText& key) { return key.text; });
  return {all, keys.size()};
}

KeyRequirement needs(std::initializer_list<TableText> any_of) { return {.any_of = texts(any_of)}; }
KeyRequirement needs(Fact fact) { return {.fact = fact}; }
KeyRequirement needs_value(TableText key, std::initializer_list<TableText> words) {
  return {.key = key.text, .words = texts(words)};
}
KeyRequirement excludes(std::initializer_list<TableText> none_of) {
  return {.none_of = texts(none_of)};
}
KeyRequirement needs_absence(std::initializer_list<TableText> absent) {
  return {.absent = texts(absent)};
}
KeyRequirement when(std::initializer_list<TableText> words, KeyRequirement requirement) {
  requirement.when = texts(words);
  return requirement;
}

const KeyRequirement kRotary = needs_value("rotary.kind", {"half", "interleaved"});
const KeyRequirement kQkNorm = needs_value("qk_norm", {"rms", "l2", "layer"});
const KeyRequirement kInputNorm = needs_value("input_norm", {"rms", "layer"});
const KeyRequirement kLayerNorm = needs_value("qk_norm", {"layer"});
const KeyRequirement kAdditiveScore = needs_value("score", {"additive"});
const KeyRequirement kPairScore = needs_value("score", {"additive", "concat"});

// Kinds of rows. `member` is a pointer to a member of Options, or member_of().

template <class Group, class Value>
auto member_of(Group Options::*group, Value Group::*member) {
  return [=](Options& options) -> Value& { return options.*group.*member; };
}

/// A tensor. Its companion in the table of inputs becomes a requirement.
Field tensor(Input input, const char* help, Requirements requirements = {}) {
  if (row_of(input).companion) requirements.push_back(needs({*row_of(input).companion}));
  return {.key = std::string(name_of(input)),
          .type = FieldType::tensor,
          .input = input,
          .placeholder = "FILE",
          .help = help,
          .requirements = std::move(requirements)};
}

/// A tensor for which a word may stand.
Field tensor_or(std::string word, Field field) {
  field.words.push_back(std::move(word));
  return field;
}

/// One word of an enum.
template <class Enum, class Member>
Field choice(std::string key, const char* help,
             const std::vector<std::pair<std::string, Enum>>& meanings, Member member,
             Requirements requirements = {}) {
  Field field{.key = std::move(key),
              .placeholder = "WORD",
              .help = help,
              .requirements = std::move(requirements)};
  for (const auto& [word, meaning] : meanings) field.words.push_back(word);
  field.apply = [meanings, member](const Json& value, Options& options) {
    for (const auto& [word, meaning] : meanings)
      if (word == *word_of(value)) std::invoke(member, options) = meaning;
  };
  return field;
}

constexpr std::pair<const char*, StoredType> kStoredTypes[] = {
    {"e4m3", StoredType::e4m3},
    {"e5m2", StoredType::e5m2},
    {"e4m3fnuz", StoredType::e4m3fnuz},
    {"e5m2fnuz", StoredType::e5m2fnuz},
    {"nvfp4", StoredType::nvfp4},
    {"mxfp4", StoredType::mxfp4},
    {"flashmla_v32", StoredType::flashmla_v32},
    {"flashmla_model1", StoredType::flashmla_model1}};
constexpr std::size_t kCacheTypes = 2;  // the last ones, of KV_pages only

Field stored_type(std::string key, const char* help, StoredType Options::*member,
                  Requirements requirements, std::size_t omitted = kCacheTypes) {
  return choice<StoredType>(std::move(key), help,
                            {std::begin(kStoredTypes), std::end(kStoredTypes) - omitted}, member,
                            std::move(requirements));
}

/// The precision of the arithmetic, which is not the dtype of inputs and results.
Field precision_of_arithmetic() {
  Field field = choice<Compute>(
      "compute", "precision of the arithmetic (bf16: of products only)",
      {{"auto", Compute::automatic}, {"f32", Compute::f32}, {"f64", Compute::f64}},
      &Options::compute, {when({"bf16"}, needs_value("score", {"dot", "cosine", "general"}))});
  field.words.emplace_back("bf16");
  field.apply = [apply = field.apply](const Json& value, Options& options) {
    options.bf16_products = *word_of(value) == "bf16";
    if (options.bf16_products)
      options.compute = Compute::automatic;
    else
      apply(value, options);
  };
  const std::string reason =
      "inputs of this dtype are computed in f32, and their results have it; 'attn convert --dtype ";
  for (const auto& [word, dtype] :
       {std::pair("f16", "f16"), {"float16", "f16"}, {"fp16", "f16"}, {"half", "f16"}})
    field.refused.emplace_back(word, reason + dtype + "' converts inputs");
  return field;
}

Field of_type(FieldType type, std::string key, const char* help, Requirements requirements) {
  return {
      .key = std::move(key), .type = type, .help = help, .requirements = std::move(requirements)};
}

/// A finite number, at least `min` if that is given.
template <class Member>
Field number(std::string key, const char* help, std::optional<std::int64_t> min, Member member,
             Requirements requirements = {}) {
  Field field = of_type(FieldType::number, std::move(key), help, std::move(requirements));
  field.placeholder = "X";
  field.min = min;
  field.apply = [member](const Json& v, Options& o) { std::invoke(member, o) = number_of(v); };
  return field;
}

template <class Member>
Field positive_number(std::string key, const char* help, Member member,
                      Requirements requirements = {}) {
  Field field = number(std::move(key), help, 0, member, std::move(requirements));
  field.exclusive_min = true;
  return field;
}

template <class Member>
Field integer(std::string key, const char* placeholder, const char* help,
              std::optional<std::int64_t> min, Member member, Requirements requirements = {}) {
  Field field = of_type(FieldType::integer, std::move(key), help, std::move(requirements));
  field.placeholder = placeholder;
  field.min = min;
  field.apply = [member](const Json& v, Options& o) { std::invoke(member, o) = integer_of(v); };
  return field;
}

/// true or false; as a flag it needs no value.
template <class Member>
Field boolean(std::string key, const char* help, Member member, Requirements requirements = {}) {
  Field field = of_type(FieldType::boolean, std::move(key), help, std::move(requirements));
  field.apply = [member](const Json& v, Options& o) { std::invoke(member, o) = *v.get<bool>(); };
  return field;
}

/// The same field with one more spelling of its flag.
Field also(std::string flag, Field field) {
  field.other_flags.push_back(std::move(flag));
  return field;
}

Field common(Field field) {
  field.is_common = true;
  return field;
}

// The table.

std::vector<Field> tensor_fields() {
  const KeyRequirement kPages = needs({Input::K_pages, Input::KV_pages, Input::CKV_pages});
  const KeyRequirement kPageTable = needs({Input::block_table, Input::kv_indptr, "index_space"});
  const KeyRequirement kNoOtherKeys =
      excludes({Input::K, Input::V, Input::past_K, Input::documents, Input::cu_seqlens_k});
  const KeyRequirement kStoredKeys =
      needs({Input::K, Input::K_pages, Input::KV_pages, Input::CKV, Input::CKV_pages});
  const KeyRequirement kNoColumnsOfKeys = excludes({"value_width", Input::Q_nope});
  const KeyRequirement kNoPast = excludes({Input::past_K});
  const KeyRequirement kStoredValues = needs({Input::V, Input::V_pages, Input::KV_pages});
  const KeyRequirement no_direct_inputs = excludes({Input::Q, Input::K, Input::V});
  const KeyRequirement embeddings = needs({Input::embeddings});
  return moved<Field>({
      common(tensor(Input::embeddings, "token embeddings X (L, M), from which queries are computed",
                    {no_direct_inputs})),
      tensor(Input::memory, "source of keys and values (S, M); default: embeddings",
             {no_direct_inputs}),
      tensor(Input::memory_V, "source of values (S, Mv); default: memory", {no_direct_inputs}),
      common(also("--wq", tensor(Input::W_Q, "query weights (M, H*D)", {embeddings}))),
      common(also("--wk", tensor(Input::W_K, "key weights (M, G*D)", {embeddings}))),
      common(also("--wv", tensor(Input::W_V, "value weights (M, G*Dv)", {embeddings}))),
      also("--wo", tensor(Input::W_O, "output weights (H*Dv, M)")),
      also("--bq", tensor(Input::b_Q, "query bias (H*D)", {embeddings})),
      also("--bk", tensor(Input::b_K, "key bias (G*D)", {embeddings})),
      also("--bv", tensor(Input::b_V, "value bias (G*Dv)", {embeddings})),
      also("--bo", tensor(Input::b_O, "output bias (M)")),
      tensor(Input::W_gate, "weights of the output gate (M, H*Dv): context times sigmoid(X W_gate)",
             {embeddings, excludes({Input::gate})}),
      tensor(Input::b_gate, "bias of the output gate (H*Dv)"),
      tensor(Input::gate, "output gate before its sigmoid, shaped as the context"),
      common(tensor(Input::Q, "queries (L, D), instead of embeddings and weights",
                    {needs({Input::K, Input::K_pages, Input::KV_pages})})),
      common(tensor(Input::K, "keys (S, D)", {needs({Input::Q})})),
      common(tensor_or(
          "K", tensor(Input::V, "values (S, Dv), or K for the keys, which are also the default",
                      {needs({Input::Q}), needs({Input::K})}))),
      common(tensor(Input::mask,
                    "boolean (true or 1: may attend) or additive, broadcast to (B, H, L, S)")),
      tensor(Input::key_indices,
             "keys that each query sees (L, n), (B, L, n), (B, G or H, L, n); -1: none"),
      tensor(Input::index_counts,
             "number of valid entries in each list of key_indices: (L), (B, L) or (B, 1)"),
      tensor(Input::bias,
             "numbers added to scaled scores, in addition to a mask; broadcast to (B, H, L, S)"),
      common(tensor(Input::key_mask, "mask over keys only, (S) or (B, S)")),
      tensor(Input::past_K, "cached keys (B, G, P, D), which precede the new keys"),
      tensor(Input::past_V, "cached values (B, G, P, Dv)"),
      tensor(Input::query_lengths, "number of queries of each batch item; the rest is padding"),
      tensor(Input::key_lengths, "number of keys of each batch item; the rest is padding"),
      tensor(
          Input::key_starts,
          "index of the first key of each batch item: positions count from it, and those before it "
          "are padding"),
      tensor(Input::documents, "document number of each query (L) or (B, L); negative: padding",
             {excludes({Input::cu_seqlens_q, Input::cu_seqlens_k})}),
      tensor(Input::key_documents, "document number of each key (S); default: documents",
             {excludes({Input::cu_seqlens_q, Input::cu_seqlens_k}), needs({Input::documents})}),
      tensor(Input::cu_seqlens_q, "boundaries of the documents among the queries: [0, 3, ..., L]"),
      tensor(Input::cu_seqlens_k,
             "boundaries of the documents among the keys; default: cu_seqlens_q",
             {needs({Input::cu_seqlens_q})}),
      tensor(
          Input::dropout_mask,
          "weights that dropout keeps (1 or true), broadcast to (B, H, L, S); the others become 0",
          {needs({"dropout_p"})}),
      tensor(Input::bias_K, "extra key (G*D), appended after all others, visible to every query"),
      tensor(Input::bias_V, "value of the extra key bias_K (G*Dv)"),
      tensor(Input::q_norm, "weights of the normalisation of queries: (D), (H, D) or (H*D)",
             {kQkNorm}),
      tensor(Input::k_norm, "weights of the normalisation of keys: (D), (G, D) or (G*D)",
             {kQkNorm}),
      tensor(Input::q_norm_bias, "bias of qk_norm layer, shaped as q_norm", {kLayerNorm}),
      tensor(Input::k_norm_bias, "bias of qk_norm layer, shaped as k_norm", {kLayerNorm}),
      tensor(Input::input_norm_weight, "weights of input_norm (M)", {kInputNorm}),
      tensor(Input::input_norm_bias, "bias of input_norm layer (M)",
             {needs_value("input_norm", {"layer"})}),
      tensor(Input::cos, "rotary cosines (positions, r/2), or (B, L, r/2)",
             {kRotary, excludes({"rotary.width", "rotary.base", "rotary.scaling", "rotary.factor",
                                 "rotary.original_length", "rotary.low_frequency_factor",
                                 "rotary.high_frequency_factor", "rotary.beta_fast",
                                 "rotary.beta_slow", "rotary.truncate", "rotary.attention_factor",
                                 "rotary.short_factor", "rotary.long_factor"})}),
      tensor(Input::sin, "rotary sines"),
      tensor(Input::position_ids,
             "positions of the queries (L) or (B, L) for rotary and query_scale",
             {needs({"rotary.kind", "query_scale.factor"})}),
      tensor(Input::key_position_ids, "rotary positions of the new keys; default: position_ids",
             {kRotary}),
      tensor(Input::alibi_slopes, "ALiBi slopes (H) or (B, H)"),
      tensor(Input::relative_bias, "bias (buckets, H) by relative position, as in T5"),
      tensor(
          Input::token_ids,
          "token ids of the keys (S) or (B, S), for duplicate_token_weight and induction_weight"),
      tensor(Input::sinks, "extra score of each head (H), in the softmax but without a value",
             {needs_value("normaliser", {"softmax"}), needs_value("softmax.axis", {"keys"})}),
      tensor(Input::head_scale,
             "multiply the scores of each head by this (H), in addition to scale"),
      tensor(Input::W_score, "weights of score general (D, Dk) or concat (D+Dk, A)",
             {needs_value("score", {"general", "concat"})}),
      tensor(Input::W_score_Q, "query weights of score additive (D, A)", {kAdditiveScore}),
      tensor(Input::W_score_K, "key weights of score additive (Dk, A)", {kAdditiveScore}),
      tensor(Input::b_score, "bias of score additive or concat (A)", {kPairScore}),
      tensor(Input::v_score, "output weights of score additive or concat (A)", {kPairScore}),
      tensor(Input::g_score, "norm of v_score: the output weights are g v / |v|", {kPairScore}),
      tensor(
          Input::grad_context,
          "derivative of a loss with respect to context or head_context, for grad_Q, grad_K, ..."),
      tensor(Input::grad_output, "derivative of a loss with respect to output",
             {needs({Input::W_O, Input::W_UV})}),
      tensor(Input::grad_weights, "derivative of a loss with respect to weights (B, H, L, S)"),
      tensor(Input::grad_logsumexp, "derivative of a loss with respect to logsumexp (B, H, L)"),
      tensor(Input::K_pages, "pool of pages with keys (P, page size, G, D), instead of K",
             {needs({Input::Q}), kPageTable, kNoOtherKeys, excludes({Input::KV_pages})}),
      tensor(Input::V_pages, "pool of pages with values (P, page size, G, Dv)"),
      tensor(Input::KV_pages, "pool of pages with keys and values (P, 2, page size, G, D)",
             {needs({Input::Q, Input::Q_nope}), kPageTable, kNoOtherKeys}),
      tensor(Input::block_table,
             "pages of each sequence (B, n); its keys are the first key_lengths",
             {kPages, needs({Input::key_lengths, Input::kv_indptr})}),
      tensor(Input::kv_indptr, "first index into kv_indices of each sequence, and the end (B+1)",
             {kPages}),
      tensor(Input::kv_indices, "pages of all sequences, in order"),
      tensor(Input::last_page_len, "number of keys in the last page of each sequence (B)"),
      tensor(Input::q_scale,
             "multiply stored Q by this: one number, (H), (B, H), (B, H, L), or with blocks of D",
             {needs({Input::Q})}),
      tensor(Input::q_zero_point, "subtract this from stored Q before q_scale",
             {needs({Input::Q})}),
      tensor(Input::q_global_scale, "one number that multiplies q_scale",
             {needs({Input::q_scale})}),
      tensor(Input::k_scale,
             "multiply stored K by this: one number, (G), (B, G) or of pages (P, G), one for each "
             "token "
             "and head, or with blocks of D",
             {kStoredKeys, kNoPast}),
      tensor(Input::k_zero_point, "subtract this from stored K before k_scale",
             {kStoredKeys, kNoPast}),
      tensor(Input::k_global_scale, "one number that multiplies k_scale",
             {needs({Input::k_scale})}),
      tensor(Input::v_scale, "multiply stored V by this, as k_scale",
             {kStoredValues, kNoPast, kNoColumnsOfKeys}),
      tensor(Input::v_zero_point, "subtract this from stored V before v_scale",
             {kStoredValues, kNoPast, kNoColumnsOfKeys}),
      tensor(Input::v_global_scale, "one number that multiplies v_scale",
             {needs({Input::v_scale})}),
      tensor(Input::Q_nope,
             "queries of latent attention, multiplied by W_UK (B, H, L, R), instead of Q",
             {needs({Input::CKV, Input::CKV_pages, Input::KV_pages}),
              excludes({Input::embeddings, Input::Q, Input::K, Input::V, "rotary.kind",
                        "value_width"})}),
      tensor(Input::Q_pe, "their columns with rotary positions (B, H, L, Dr)"),
      tensor(Input::CKV, "latent vectors (B, S, R), keys of Q_nope and values, for all heads",
             {needs({Input::Q_nope}),
              excludes({Input::K, Input::V, Input::past_K, Input::K_pages, Input::KV_pages})}),
      tensor(Input::K_pe, "keys of Q_pe with rotary positions (B, S, Dr), for all heads"),
      tensor(Input::CKV_pages, "pool of pages with CKV (P, page size, R)",
             {needs({Input::Q_nope}), kPageTable, kNoOtherKeys,
              excludes({Input::CKV, Input::K_pages, Input::KV_pages})}),
      tensor(Input::K_pe_pages, "pool of pages with K_pe (P, page size, Dr)"),
      tensor(Input::W_UV,
             "value weights of latent attention (H, R, Dv): output is the context of each head "
             "times it",
             {needs({Input::Q_nope, "value_width"})}),
      tensor(Input::k_pe_scale, "multiply stored K_pe by this, as k_scale",
             {needs({Input::K_pe, Input::K_pe_pages})}),
  });
}

void apply_scale(const Json& value, Options& options) {
  const auto word = word_of(value);
  if (word == nullptr)
    options.scale = {Scale::Kind::number, number_of(value)};
  else
    options.scale = {*word == "auto" ? Scale::Kind::automatic : Scale::Kind::none, 1};
}

void apply_causal(const Json& value, Options& options) {
  const auto word = word_of(value);
  options.causal = word != nullptr || *value.get<bool>();
  if (word != nullptr)
    options.alignment = *word == "top-left" ? Alignment::top_left : Alignment::bottom_right;
}

/// Scores, masks and weights.
std::vector<Field> attention_fields() {
  return moved<Field>({
      common(integer("heads", "H", "number of query heads; columns are split into H equal parts", 1,
                     &Options::heads)),
      common(integer("kv_heads", "G",
                     "number of key/value heads, each shared by H/G query heads; default: H", 1,
                     &Options::kv_heads)),
      common(choice<Layout>(
          "layout", "axes of 4-D queries, keys and values, or of 3-D ones (thd: tokens, heads, D)",
          {{"bhld", Layout::bhld}, {"blhd", Layout::blhd}, {"thd", Layout::thd}}, &Options::layout,
          {when({"blhd"}, needs(Fact::four_axes)), when({"thd"}, needs(Fact::three_axes_of_Q))})),
      stored_type("q_type", "number format of the uint8 elements of Q", &Options::q_type,
                  {needs({Input::Q})}),
      stored_type("k_type", "number format of the uint8 elements of K", &Options::k_type,
                  {needs({Input::K, Input::K_pages, Input::KV_pages, Input::CKV, Input::CKV_pages}),
                   when({"flashmla_v32", "flashmla_model1"}, needs({Input::KV_pages})),
                   when({"flashmla_v32", "flashmla_model1"},
                        excludes({Input::k_scale, Input::k_zero_point})),
                   when({"flashmla_model1"}, excludes({Input::Q_nope}))},
                  0),
      stored_type("v_type", "number format of the uint8 elements of V", &Options::v_type,
                  {needs({Input::V, Input::V_pages, Input::KV_pages})}),
      stored_type("k_pe_type", "number format of the uint8 elements of K_pe", &Options::k_pe_type,
                  {needs({Input::K_pe, Input::K_pe_pages})}),
      integer(
          "value_width", "N", "values are the first N columns of K or KV_pages", 1,
          &Options::value_width,
          {needs({Input::K, Input::KV_pages}), excludes({Input::V, Input::past_K, "rotary.kind"})}),
      choice<PoolLayout>("page_layout",
                         "order of the axes of a page, by default nhd (page size, heads, D)",
                         {{"nhd", PoolLayout::nhd},
                          {"hnd", PoolLayout::hnd},
                          {"interleaved", PoolLayout::interleaved}},
                         &Options::page_layout,
                         {needs({Input::K_pages, Input::KV_pages, Input::CKV_pages}),
                          when({"interleaved"}, needs({Input::KV_pages}))}),
      choice<bool>("batch_axis", "position of the batch axis in 3-D inputs and results",
                   {{"first", false}, {"second", true}}, &Options::batch_second,
                   {needs(Fact::three_axes)}),
      choice<WeightsLayout>(
          "weights_layout",
          "axes of W_Q, W_K, W_V, W_O and W_gate (out-in: as saved by torch.nn.Linear)",
          {{"in-out", WeightsLayout::in_out}, {"out-in", WeightsLayout::out_in}},
          &Options::weights_layout,
          {needs({Input::W_Q, Input::W_K, Input::W_V, Input::W_O, Input::W_gate})}),
      choice<Score>("score", "score function",
                    {{"dot", Score::dot},
                     {"cosine", Score::cosine},
                     {"l2", Score::l2},
                     {"general", Score::general},
                     {"additive", Score::additive},
                     {"concat", Score::concat}},
                    &Options::score, {when({"general", "concat"}, needs({Input::W_score}))}),
      {.key = "scale",
       .type = FieldType::number,
       .placeholder = "X",
       .help = "multiply the scores by this: auto (1/sqrt(D)), none (1) or a number",
       .is_common = true,
       .words = {"auto", "none"},
       .apply = apply_scale},
      number("softcap", "limit scaled scores to (-X, X): X tanh(s / X); 0: no limit", 0,
             &Options::softcap),
      choice<SoftcapOrder>(
          "softcap_order", "when the softcap is applied",
          {{"before-mask", SoftcapOrder::before_mask}, {"after-mask", SoftcapOrder::after_mask}},
          &Options::softcap_order, {needs({"softcap"})}),
      boolean("alibi", "add the ALiBi bias, -slope * distance, with the standard slopes",
              &Options::alibi, {excludes({Input::alibi_slopes})}),
      choice<RelativeBias::Direction>(
          "relative.direction",
          "directions that relative_bias distinguishes (auto is past if causal, otherwise both)",
          {{"auto", RelativeBias::Direction::automatic},
           {"both", RelativeBias::Direction::both},
           {"past", RelativeBias::Direction::past}},
          member_of(&Options::relative, &RelativeBias::direction), {needs({Input::relative_bias})}),
      integer("relative.max_distance", "N", "distances >= N share the last bucket; default: 128", 1,
              member_of(&Options::relative, &RelativeBias::max_distance),
              {needs({Input::relative_bias})}),
      {.key = "bias_rule",
       .type = FieldType::text,
       .placeholder = "TEXT",
       .help = "add this expression to the scores, such as '-0.5 * abs(q - k)'; names: those of "
               "mask_rule",
       .apply = [](const Json& v, Options& o) { o.bias_rule = *v.get<std::string>(); }},
      boolean("zero_key", "append one key and value of zeros, visible to every query",
              &Options::zero_key),
      {.key = "causal",
       .type = FieldType::boolean,
       .help = "causal mask: query i sees keys j <= i + offset; top-left or bottom-right also sets "
               "alignment",
       .is_common = true,
       .words = {"top-left", "bottom-right"},
       .requirements = {{.same_word = "alignment"},
                        when({"top-left", "bottom-right"}, needs_absence({"causal_offset"}))},
       .apply = apply_causal},
      choice<Alignment>(
          "alignment", "offset for causal and window (number of past keys, or S - L)",
          {{"top-left", Alignment::top_left}, {"bottom-right", Alignment::bottom_right}},
          &Options::alignment,
          {needs({"causal", "window", "mask_rule", "chunk", "bias_rule", "alibi",
                  Input::alibi_slopes, Input::relative_bias})}),
      {.key = "causal_offset",
       .type = FieldType::integer,
       .placeholder = "N",
       .help = "the offset itself: position of the first query minus that of the first key",
       .min = -kMaxOffset,
       .max = kMaxOffset,
       .requirements = {needs({"causal", "window", "mask_rule", "chunk", "bias_rule", "alibi",
                               Input::alibi_slopes, Input::relative_bias}),
                        needs_absence({"alignment", "documents", "cu_seqlens_q"})},
       .apply = [](const Json& v, Options& o) { o.causal_offset = integer_of(v); }},
      {.key = "window",
       .type = FieldType::integers,
       .placeholder = "LEFT,RIGHT",
       .help = "query i sees keys i+offset-LEFT to i+offset+RIGHT only; -1: no limit",
       .example = "128,0",
       .min = -1,
       .length = 2,
       .apply =
           [](const Json& v, Options& o) {
             o.window = {integers_of(v)[0], integers_of(v)[1]};
           }},
      {.key = "mask_rule",
       .type = FieldType::text,
       .placeholder = "TEXT",
       .help = "show a query the keys for which this is true, such as 'q >= k and q - k < 8'; "
               "names: q, k, i, j, b, h, g, L, S and those of mask_tables",
       .apply = [](const Json& v, Options& o) { o.mask_rule = *v.get<std::string>(); }},
      {.key = "mask_tables",
       .type = FieldType::tensor,
       .names_tensors = true,
       .placeholder = "NAME=FILE,...",
       .help = "tables of numbers for mask_rule (integers) and bias_rule; also a JSON object",
       .requirements = {needs({"mask_rule", "bias_rule"})}},
      integer("chunk", "C", "show a query the keys of its own chunk of C positions only", 1,
              &Options::chunk),
      integer("sink_tokens", "N", "always show the first N keys that window hides on the left", 1,
              &Options::sink_tokens, {needs({"window"})}),
      tensor(
          Input::prefix_lengths,
          "length of the prefix that every query sees despite causal, one for each batch item (B)",
          {needs({"causal"}), excludes({Input::documents})}),
      tensor(Input::tree_parents,
             "parents (N) or (B, N) of the last N queries and keys, which are a tree: each sees "
             "its ancestors; -1: root",
             {excludes({Input::query_lengths, Input::documents, Input::cu_seqlens_q})}),
      tensor(Input::blocks,
             "for each block of queries the blocks of keys that it sees, (m, n) or (B, m, n)",
             {needs({"block_size"})}),
      {.key = "block_size",
       .type = FieldType::integers,
       .placeholder = "M,N",
       .help = "size of each block in blocks: M queries by N keys",
       .example = "64,64",
       .min = 1,
       .length = 2,
       .requirements = {needs({Input::blocks})},
       .apply = [](const Json& v, Options& o) { o.block_size = integers_of(v); }},
      integer("index_block", "M", "each of key_indices is a block of M keys; default: 1", 1,
              &Options::index_block, {needs({Input::key_indices})}),
      choice<IndexSpace>(
          "index_space",
          "what key_indices count: keys of the sequence, or slots of the pool of pages",
          {{"sequence", IndexSpace::sequence}, {"cache", IndexSpace::cache}}, &Options::index_space,
          {needs({Input::key_indices}), needs({Input::K_pages, Input::KV_pages, Input::CKV_pages}),
           excludes({"index_block"})}),
      choice<Duplicates>(
          "duplicates", "a key that key_indices lists more than once for a query",
          {{"error", Duplicates::error}, {"once", Duplicates::once}, {"count", Duplicates::count}},
          &Options::duplicates,
          {needs({Input::key_indices}), when({"count"}, needs_value("normaliser", {"softmax"})),
           when({"count"}, needs_value("softcap_order", {"before-mask"}))}),
      choice<MaskPolarity>("mask_polarity", "meaning of true in a boolean mask",
                           {{"attend", MaskPolarity::attend}, {"ignore", MaskPolarity::ignore}},
                           &Options::mask_polarity, {needs(Fact::boolean_mask)}),
      choice<ShortMask>(
          "short_mask",
          "if a mask has fewer columns than keys, report an error or hide the other keys",
          {{"refuse", ShortMask::refuse}, {"hide", ShortMask::hide}}, &Options::short_mask,
          {needs({Input::mask})}),
      choice<EmptyRows>(
          "empty_rows",
          "weights of a query that sees no key",
          {{"zero", EmptyRows::zero}, {"uniform", EmptyRows::uniform}, {"nan", EmptyRows::nan}},
          &Options::empty_rows),
      {.key = "dropout_p",
       .type = FieldType::number,
       .placeholder = "P",
       .help = "probability of dropout: the weights that dropout_mask keeps are divided by 1 - P",
       .min = 0,
       .less_than = 1,
       .requirements = {needs({Input::dropout_mask})},
       .apply = [](const Json& v, Options& o) { o.dropout_p = number_of(v); }},
      {.key = "lse_base",
       .type = FieldType::number,
       .placeholder = "X",
       .help = "base of the logarithm in logsumexp: e or 2",
       .words = {"e"},
       .apply =
           [](const Json& v, Options& o) {
             o.lse_base = word_of(v) == nullptr ? number_of(v) : std::numbers::e;
           }},
      choice<bool>("lse_sinks", "whether logsumexp counts the sinks",
                   {{"included", true}, {"excluded", false}}, &Options::lse_sinks,
                   {needs({Input::sinks})}),
      choice<EmptyLogsumexp>(
          "lse_empty", "logsumexp of a query that sees no key",
          {{"-inf", EmptyLogsumexp::minus_infinity}, {"inf", EmptyLogsumexp::infinity}},
          &Options::lse_empty),
      also("--normalizer",
           choice<Normaliser>("normaliser", "function that turns scores into weights",
                              {{"softmax", Normaliser::softmax},
                               {"sparsemax", Normaliser::sparsemax},
                               {"entmax15", Normaliser::entmax15},
                               {"hardmax", Normaliser::hardmax},
                               {"sigmoid", Normaliser::sigmoid},
                               {"top_k", Normaliser::top_k},
                               {"none", Normaliser::none}},
                              &Options::normaliser, {when({"top_k"}, needs({"top_k"}))})),
      integer("top_k", "K", "with normaliser top_k: softmax over the K largest scores", 1,
              &Options::top_k, {needs_value("normaliser", {"top_k"})}),
      positive_number("o_scale", "divide the context by X, as for 8-bit outputs; default: 1",
                      &Options::o_scale),
      positive_number("temperature", "divide scores, but not sinks, by X before normalising them",
                      &Options::temperature),
      choice<SoftmaxAxis>("softmax.axis", "softmax over each query's keys, or the whole matrix",
                          {{"keys", SoftmaxAxis::keys}, {"all", SoftmaxAxis::all}},
                          &Options::softmax_axis),
      choice<SoftmaxPrecision>("softmax.precision", "precision of the softmax alone",
                               {{"auto", SoftmaxPrecision::automatic},
                                {"f16", SoftmaxPrecision::f16},
                                {"bf16", SoftmaxPrecision::bf16},
                                {"f32", SoftmaxPrecision::f32},
                                {"f64", SoftmaxPrecision::f64}},
                               &Options::softmax_precision),
      {.key = "rows",
       .type = FieldType::integers,
       .placeholder = "I,J,...",
       .help = "compute these queries only; negative numbers count from the end",
       .example = "0,-1",
       .flag_expected = "whole numbers or increasing ranges (0:3)",
       .may_be_empty = false,
       .apply = [](const Json& v, Options& o) { o.rows = integers_of(v); }},
      precision_of_arithmetic(),
      choice<Path>("path", "implementation (auto uses the fused kernels where possible)",
                   {{"auto", Path::automatic}, {"reference", Path::reference}}, &Options::path),
  });
}

void apply_embedding_scale(const Json& value, Options& options) {
  options.position.embedding_scale_sqrt = word_of(value) != nullptr;
  if (word_of(value) == nullptr) options.position.embedding_scale = number_of(value);
}

/// Positional encodings that are added to the embeddings.
std::vector<Field> position_fields() {
  const KeyRequirement sinusoidal = needs_value("position.kind", {"sinusoidal"});
  return moved<Field>({
      also("--position",
           choice<Position::Kind>(
               "position.kind", "positional encoding added to the embeddings",
               {{"none", Position::Kind::none}, {"sinusoidal", Position::Kind::sinusoidal}},
               member_of(&Options::position, &Position::kind),
               {when({"sinusoidal"}, needs({Input::embeddings}))})),
      positive_number("position.base", "base of the wavelengths; default: 10000",
                      member_of(&Options::position, &Position::base), {sinusoidal}),
      integer("position.first", "N", "position of the first token; default: 0", {},
              member_of(&Options::position, &Position::first), {sinusoidal}),
      choice<Position::Exponent>(
          "position.exponent", "exponent of column pair i (2i/M or 4i/M)",
          {{"standard", Position::Exponent::standard}, {"doubled", Position::Exponent::doubled}},
          member_of(&Options::position, &Position::exponent), {sinusoidal}),
      also("--last-column-zero",
           boolean("position.last_column_zero",
                   "for odd M, leave the last column zero, as a loop over pairs does",
                   member_of(&Options::position, &Position::last_column_zero), {sinusoidal})),
      {.key = "position.embedding_scale",
       .other_flags = {"--embedding-scale"},
       .type = FieldType::number,
       .placeholder = "X",
       .help = "multiply the embeddings by this: a number, or sqrt for sqrt(M)",
       .words = {"sqrt"},
       .requirements = {needs({Input::embeddings})},
       .apply = apply_embedding_scale},
  });
}

/// What happens to queries and keys before their product.
std::vector<Field> rotary_fields() {
  const KeyRequirement scaled =
      needs_value("rotary.scaling", {"linear", "ntk", "dynamic-ntk", "yarn", "llama3", "longrope"});
  const KeyRequirement yarn = needs_value("rotary.scaling", {"yarn"});
  const KeyRequirement llama3 = needs_value("rotary.scaling", {"llama3"});
  const KeyRequirement longrope = needs_value("rotary.scaling", {"longrope"});
  const KeyRequirement original =
      needs_value("rotary.scaling", {"dynamic-ntk", "yarn", "llama3", "longrope"});
  return moved<Field>({
      number("clip_qkv", "limit projected queries, keys and values to [-X, X]; 0: no limit", 0,
             &Options::clip_qkv),
      choice<QkNorm>("input_norm",
                     "normalisation of each token of the embeddings before it is projected",
                     {{"none", QkNorm::none}, {"rms", QkNorm::rms}, {"layer", QkNorm::layer}},
                     &Options::input_norm, {needs({Input::embeddings})}),
      number("input_norm_epsilon", "epsilon of input_norm; default: 1e-6 (rms), 1e-5 (layer)", 0,
             &Options::input_norm_epsilon, {kInputNorm}),
      choice<QkNorm>("qk_norm", "normalisation of queries and keys",
                     {{"none", QkNorm::none},
                      {"rms", QkNorm::rms},
                      {"l2", QkNorm::l2},
                      {"layer", QkNorm::layer}},
                     &Options::qk_norm),
      choice<QkNormAxis>("qk_norm_axis",
                         "columns normalised together: of each head, or of all heads as in OLMo 2",
                         {{"head", QkNormAxis::head}, {"all", QkNormAxis::all}},
                         &Options::qk_norm_axis, {kQkNorm}),
      number("qk_norm_epsilon", "epsilon of qk_norm; default: 1e-6 (rms), 1e-12 (l2), 1e-5 (layer)",
             0, &Options::qk_norm_epsilon, {kQkNorm}),
      number("norm_offset", "added to the weights of input_norm and qk_norm; Gemma: 1", {},
             &Options::norm_offset,
             {needs({Input::input_norm_weight, Input::q_norm, Input::k_norm})}),
      also("--rotary",
           choice<Rotary::Kind>("rotary.kind",
                                "rotary positions (columns of a pair are r/2 apart, or adjacent)",
                                {{"none", Rotary::Kind::none},
                                 {"half", Rotary::Kind::half},
                                 {"interleaved", Rotary::Kind::interleaved}},
                                member_of(&Options::rotary, &Rotary::kind))),
      integer("rotary.width", "N", "number of columns to rotate; default: D", 1,
              member_of(&Options::rotary, &Rotary::width), {kRotary}),
      positive_number("rotary.base", "base of the wavelengths; default: 10000",
                      member_of(&Options::rotary, &Rotary::base), {kRotary}),
      choice<Rotary::Scaling>(
          "rotary.scaling", "scaling of the angles for longer contexts",
          {{"none", Rotary::Scaling::none},
           {"linear", Rotary::Scaling::linear},
           {"ntk", Rotary::Scaling::ntk},
           {"dynamic-ntk", Rotary::Scaling::dynamic_ntk},
           {"yarn", Rotary::Scaling::yarn},
           {"llama3", Rotary::Scaling::llama3},
           {"longrope", Rotary::Scaling::longrope}},
          member_of(&Options::rotary, &Rotary::scaling),
          {kRotary,
           when({"dynamic-ntk", "yarn", "llama3", "longrope"}, needs({"rotary.original_length"})),
           when({"longrope"}, needs({"rotary.short_factor"}))}),
      positive_number("rotary.factor", "context length / original length; default: 1",
                      member_of(&Options::rotary, &Rotary::factor), {kRotary, scaled}),
      integer("rotary.original_length", "N",
              "context length in training (dynamic-ntk, yarn, llama3, longrope)", 1,
              member_of(&Options::rotary, &Rotary::original_length), {kRotary, original}),
      also("--rotary-low",
           number("rotary.low_frequency_factor",
                  "llama3: pairs with fewer turns are scaled fully; default: 1", 0,
                  member_of(&Options::rotary, &Rotary::low_frequency_factor), {kRotary, llama3})),
      also("--rotary-high",
           number("rotary.high_frequency_factor",
                  "llama3: pairs with more turns are not scaled; default: 4", 0,
                  member_of(&Options::rotary, &Rotary::high_frequency_factor), {kRotary, llama3})),
      positive_number("rotary.beta_fast", "yarn: pairs with more turns are not scaled; default: 32",
                      member_of(&Options::rotary, &Rotary::beta_fast), {kRotary, yarn}),
      positive_number("rotary.beta_slow",
                      "yarn: pairs with fewer turns are scaled fully; default: 1",
                      member_of(&Options::rotary, &Rotary::beta_slow), {kRotary, yarn}),
      boolean("rotary.truncate",
              "yarn: round the ends of the ramp to whole pairs; default: true; gpt-oss: false",
              member_of(&Options::rotary, &Rotary::truncate), {kRotary, yarn}),
      positive_number("rotary.attention_factor",
                      "yarn, longrope: multiply cosines and sines by this; default: computed from "
                      "rotary.factor",
                      member_of(&Options::rotary, &Rotary::attention_factor),
                      {kRotary, needs_value("rotary.scaling", {"yarn", "longrope"})}),
      tensor(Input::short_factor, "longrope: divisors of the frequencies (r/2)",
             {kRotary, longrope}),
      tensor(Input::long_factor, "longrope: those for contexts longer than the original length",
             {kRotary, longrope}),
      number("query_scale.factor",
             "scale queries by 1 + X log(1 + floor((position + first) / length)); Llama 4: 0.1", {},
             member_of(&Options::query_scale, &QueryScale::factor),
             {needs({"query_scale.length"})}),
      integer("query_scale.length", "N", "positions with the same factor; Llama 4: 8192", 1,
              member_of(&Options::query_scale, &QueryScale::length),
              {needs({"query_scale.factor"})}),
      integer("query_scale.first", "N", "added to each position; default: 1 (Llama 4)", {},
              member_of(&Options::query_scale, &QueryScale::first),
              {needs({"query_scale.factor"})}),
  });
}

std::vector<std::pair<std::string, std::string>> refused_generators() {
  std::vector<std::pair<std::string, std::string>> refused;
  for (const GeneratorRow& row : kGenerators)
    if (!row.refusal.empty()) refused.emplace_back(row.name, row.refusal);
  return refused;
}

/// A layer of a model (model/model_job.h), which replaces these keys by others.
std::vector<Field> model_fields() {
  const KeyRequirement model = needs({"model"});
  return moved<Field>({
      {.key = "model",
       .type = FieldType::text,
       .placeholder = "DIR",
       .help = "take the layer from this folder of config.json and model.safetensors",
       .is_common = true},
      {.key = "layer",
       .type = FieldType::integers,
       .placeholder = "N",
       .help = "number of the layer of the model, from 0; several numbers, or all, for several "
               "layers at once",
       .is_common = true,
       .expected = "a whole number >= 0, a list of them or \"all\"",
       .flag_expected = "all, or numbers and ranges such as 0,3 or 0:4",
       .words = {"all"},
       .min = 0,
       .single = true,
       .requirements = {model}},
      {.key = "stack",
       .placeholder = "WORD",
       .help = "stack of an encoder-decoder model (cross: the decoder's attention to --memory)",
       .words = {"encoder", "decoder", "cross"},
       .requirements = {model}},
      {.key = "hidden",
       .type = FieldType::tensor,
       .placeholder = "FILE",
       .help =
           "hidden states (L, M) or (B, L, M) at the input of the layer; {layer} is replaced by "
           "its number; (layers, L, M) and (layers, B, L, M) are those of all layers",
       .is_common = true,
       .requirements = {model}},
      {.key = "hidden_is",
       .placeholder = "WORD",
       .help = "hidden states before (default) or after the norm in front of the attention",
       .words = {"raw", "normed"},
       .requirements = {model}},
  });
}

/// Keys that are neither tensors nor options.
std::vector<Field> document_fields() {
  return moved<Field>({
      {.key = "schema", .help = "version of this document", .words = {"attn/1"}},
      {.key = "tokens",
       .type = FieldType::strings,
       .placeholder = "A,B,...",
       .help = "token labels, stored with the results"},
      {.key = "key_tokens",
       .type = FieldType::strings,
       .placeholder = "A,B,...",
       .help = "labels of the keys, if they are other tokens than the queries"},
      {.key = "convention",
       .placeholder = "NAME",
       .help = "defaults of a library ('attn conventions')",
       .is_common = true,
       .words = texts_of(conventions(), &Convention::name),
       .requirements = {when({"torch-mha"}, needs(Fact::heads_of_embeddings))}},
      {.key = "seed",
       .type = FieldType::seed,
       .placeholder = "N",
       .help = "seed for random tensors: a number or, for NumPy, a list",
       .requirements = {needs(Fact::random_tensor)}},
      {.key = "generator",
       .placeholder = "WORD",
       .help = "generator of random tensors",
       .words = generator_names(),
       .refused = refused_generators(),
       .requirements = {needs(Fact::random_tensor)}},
      {.key = "draws",
       .type = FieldType::draws,
       .placeholder = "LIST",
       .help = "random tensors in the order in which they are drawn: [{\"METHOD\": {...}, "
               "\"to\": \"KEY\"}, ...]"},
      {.key = "outputs",
       .type = FieldType::strings,
       .placeholder = "LIST",
       .help = "outputs to compute and show; default: scores,weights,context (and output with W_O "
               "or W_UV)",
       .is_common = true,
       .may_be_empty = false,
       .single = true},
  });
}

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  for (char& c : flag) {
    if (c == '.' || c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return flag;
}

}  // namespace

std::vector<std::string> Field::other_keys() const {
  std::vector<std::string> keys;
  if (type == FieldType::tensor || flag.empty() || key.starts_with(kPrintOptions)) return keys;
  if (key.find('.') != std::string::npos) keys.push_back(key);
  for (const std::string& other : other_flags) keys.push_back(other.substr(2));
  for (std::string& other : keys) {
    std::replace(other.begin(), other.end(), '.', '_');
    std::replace(other.begin(), other.end(), '-', '_');
  }
  return keys;
}

std::vector<Field> print_option_fields() {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const auto integer = [](const char* name, std::int64_t min, std::int64_t max, const char* help) {
    return Field{.key = std::string(kPrintOptions) + name,
                 .type = FieldType::integer,
                 .placeholder = "N",
                 .help = help,
                 .min = min,
                 .max = max};
  };
  static const KeyRequirement kTorch = needs_value("print_options.style", {"torch"});
  static const KeyRequirement kNumPy =
      when({"torch"},
           excludes({"print_options.numpy", "print_options.suppress", "print_options.floatmode"}));
  std::vector<Field> fields = moved<Field>({
      {.key = "print_options.style",
       .placeholder = "WORD",
       .help = "print as NumPy (default), PyTorch, JAX or TensorFlow: numpy, torch, jax or tf",
       .words = {"numpy", "torch", "jax", "tf"},
       .requirements = {kNumPy}},
      // 1074 digits write any float64 in full.
      integer("precision", 0, 1100, "digits after the decimal point; default: 8 (torch: 4)"),
      integer("threshold", 0, kMost, "summarise arrays with more elements; default: 1000"),
      integer("edgeitems", 0, kMost, "elements shown at each end of a summarised axis; default: 3"),
      integer("linewidth", 1, kMost, "characters per line; default: 75 (torch: 80)"),
      integer("numpy", 1, 2, "print as NumPy 1 or as NumPy 2 (2.3 and later); default: 1 (jax: 2)"),
      {.key = "print_options.suppress",
       .type = FieldType::boolean,
       .help = "do not use exponents for small numbers"},
      {.key = "print_options.floatmode",
       .placeholder = "WORD",
       .help = "fixed, unique, maxprec (default) or maxprec_equal",
       .words = {"fixed", "unique", "maxprec", "maxprec_equal"}},
      {.key = "print_options.sci_mode",
       .placeholder = "WORD",
       .help = "torch: print exponents: auto (default), always or never",
       .words = {"auto", "always", "never"},
       .requirements = {kTorch}},
      {.key = "print_options.grad_fn",
       .type = FieldType::text,
       .placeholder = "NAME",
       .help = "torch: print grad_fn=<NAME>, such as MmBackward0",
       .requirements = {kTorch}},
      {.key = "print_options.requires_grad",
       .type = FieldType::boolean,
       .help = "torch: print requires_grad=True if there is no grad_fn",
       .requirements = {kTorch}},
  });
  for (Field& field : fields) field.flag = flag_of(field.key.substr(kPrintOptions.size()));
  return fields;
}

const std::vector<Field>& job_fields() {
  // Never destroyed: that would take a twentieth of the time of a small run.
  static const std::vector<Field>& fields = *new std::vector<Field>([] {
    std::vector<Field> all;
    all.reserve(256);  // copies would take a tenth of the time of a small run
    for (const auto part : {tensor_fields, attention_fields, position_fields, rotary_fields,
                            model_fields, document_fields, print_option_fields})
      for (Field& field : part()) all.push_back(std::move(field));
    for (Field& field : all)
      if (field.key != "schema" && field.flag.empty()) field.flag = flag_of(field.key);
    return all;
  }());
  return fields;
}

const Field* find_field(std::string_view key) {
  static const std::unordered_map<std::string_view, const Field*, NameHash> fields = [] {
    std::unordered_map<std::string_view, const Field*, NameHash> all;
    for (const Field& field : job_fields()) all.emplace(field.key, &field);
    return all;
  }();
  const auto found = fields.find(key);
  if (found != fields.end()) return found->second;
  const auto group = fields.find(key.substr(0, std::min(key.find('.'), key.size())));
  return group != fields.end() && group->second->names_tensors ? group->second : nullptr;
}

const Field* find_field_by_other_key(std::string_view key) {
  static const std::unordered_map<std::string, const Field*> fields = [] {
    std::unordered_map<std::string, const Field*> all;
    for (const Field& field : job_fields())
      for (const std::string& other : field.other_keys()) all.emplace(other, &field);
    return all;
  }();
  const auto found = fields.find(std::string(key));
  return found == fields.end() ? nullptr : found->second;
}

bool is_default(const Field& field, const Json& value) {
  if (!field.apply) return false;
  Options options;
  field.apply(value, options);
  return options == Options{};
}

namespace {

bool is_among(const KeyRequirement::Texts& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

const char* text_of(Fact fact) {
  switch (fact) {
    case Fact::four_axes:
      return "Q, K and V with 4 axes";
    case Fact::three_axes:
      return "inputs with 3 axes";
    case Fact::three_axes_of_Q:
      return "Q, K and V with 3 axes";
    case Fact::boolean_mask:
      return "a boolean mask";
    case Fact::random_tensor:
      return "a random tensor";
    case Fact::heads_of_embeddings:
      break;
  }
  return "the number of heads, for which PyTorch has no default: --heads";
}

bool is_boolean(const Job& job, Input input) {
  const Tensor* mask = find(job.tensors, input);
  return mask != nullptr && !is_float(mask->dtype());
}

bool holds(Fact fact, const Job& job) {
  const Tensor* Q = given_queries(job.tensors);
  const Tensor* rows = Q != nullptr ? Q : find(job.tensors, Input::embeddings);
  switch (fact) {
    case Fact::four_axes:
      return Q != nullptr && Q->rank() == 4;
    case Fact::three_axes:
      return rows == nullptr || rows->rank() == 3;
    case Fact::three_axes_of_Q:
      return Q != nullptr && Q->rank() == 3;
    case Fact::boolean_mask:
      return is_boolean(job, Input::mask) || is_boolean(job, Input::key_mask);
    case Fact::heads_of_embeddings:
      return job.options.heads > 0 || !contains(job.tensors, Input::embeddings);
    case Fact::random_tensor:
      break;
  }
  const std::vector<Entry>& entries = job.document.entries;
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.field->type == FieldType::draws ||
           (entry.field->type == FieldType::tensor && entry.value.get<JsonObject>());
  });
}

bool has_word(std::string_view text, std::string_view word) {
  const auto is_of_word = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1))
    if ((at == 0 || !is_of_word(at - 1)) && !is_of_word(at + word.size())) return true;
  return false;
}

}  // namespace

TableUse use_of_table(const Entry& table, const Document& document) {
  if (!table.field->names_tensors || table.shared) return TableUse::used;
  TableUse use = TableUse::error;
  for (const char* key : {"mask_rule", "bias_rule"})
    if (const Entry* rule = document.find(key)) {
      // Variables and functions have other names.
      if (has_word(*rule->value.get<std::string>(), table.key.substr(kMaskTables.size())))
        return TableUse::used;
      if (rule->from_flag && !table.from_flag) use = TableUse::warning;
    }
  return use;
}

namespace {

/// One key that was given, and the rest of its job.
class Checker {
 public:
  Checker(const Entry& entry, const Job& job)
      : entry_(entry), field_(*entry.field), job_(job), document_(job.document) {}

  /// The requirement that is not met; nullopt if all are met.
  std::optional<Problem> problem() const {
    if (is_default(field_, entry_.value)) return std::nullopt;
    for (const KeyRequirement& requirement : field_.requirements) {
      if (!applies(requirement)) continue;
      const std::string message = message_of(requirement);
      if (message.empty()) continue;
      const std::string value = requirement.when.empty() ? "" : "'" + *word_of(entry_.value) + "' ";
      return Problem{.where = {entry_.origin},
                     .subject = entry_.from_flag ? "" : entry_.key,
                     .message = value + message};
    }
    if (use_of_table(entry_, document_) == TableUse::error)
      return Problem{.where = {entry_.origin},
                     .subject = entry_.from_flag ? "" : entry_.key,
                     .message = "neither mask_rule nor bias_rule has the table " +
                                printable(entry_.key.substr(kMaskTables.size()))};
    return std::nullopt;
  }

  /// Whether the error is in the command line alone and not in a file. Tensors of a job count as
  /// files; hidden states without a model are never read.
  bool is_usage() const {
    const bool contradicts_file = std::any_of(
        field_.requirements.begin(), field_.requirements.end(), [&](const KeyRequirement& each) {
          const Entry* other = document_.find(each.same_word);
          return other != nullptr && !other->from_flag;
        });
    return entry_.from_flag && !field_.input && !contradicts_file;
  }

 private:
  bool applies(const KeyRequirement& requirement) const {
    if (!requirement.when.empty())
      return word_of(entry_.value) != nullptr && is_among(requirement.when, *word_of(entry_.value));
    const bool is_conflict = !requirement.none_of.empty() || !requirement.absent.empty() ||
                             !requirement.same_word.empty();
    return is_conflict || !entry_.shared || field_.type == FieldType::tensor;
  }

  bool is_active(std::string_view key) const {
    const Entry* entry = document_.find(key);
    return entry != nullptr && !is_default(*entry->field, entry->value);
  }

  bool has_word(std::string_view key, const KeyRequirement::Texts& words) const {
    if (const Entry* entry = document_.find(key))
      return word_of(entry->value) != nullptr && is_among(words, *word_of(entry->value));
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return is_default(*find_field(key), Json{std::string(word)});
    });
  }

  /// The key or its flag, in the form in which the user gave this one.
  std::string name_of(std::string_view key) const {
    return entry_.from_flag ? find_field(key)->flag : std::string(key);
  }

  std::vector<std::string> names_of(const KeyRequirement::Texts& keys) const {
    std::vector<std::string> names;
    for (const std::string_view key : keys) names.push_back(name_of(key));
    return names;
  }

  /// The message for a requirement; empty if it is met.
  std::string message_of(const KeyRequirement& requirement) const {
    const auto active = [&](std::string_view key) { return is_active(key); };
    const auto& [when, any_of, none_of, absent, key, words, same_word, fact] = requirement;
    if (!any_of.empty() && std::none_of(any_of.begin(), any_of.end(), active)) {
      const auto given = std::find_if(any_of.begin(), any_of.end(), [&](std::string_view one) {
        return document_.find(one) != nullptr;
      });
      return "requires " + join_or(names_of(any_of)) +
             (given == any_of.end() ? "" : "; this " + name_of(*given) + " has no effect");
    }
    if (const auto other = std::find_if(none_of.begin(), none_of.end(), active);
        other != none_of.end())
      return "cannot be combined with " + name_of(*other);
    for (const std::string_view other : absent)
      if (document_.find(other) != nullptr) return "cannot be combined with " + name_of(other);
    if (!key.empty() && !has_word(key, words))
      return "requires " + name_of(key) + " " + join_or({words.begin(), words.end()});
    if (const Entry* other = document_.find(same_word))
      if (const auto mine = word_of(entry_.value), theirs = word_of(other->value);
          mine != nullptr && theirs != nullptr && *mine != *theirs)
        return *mine + " contradicts " + name_of(same_word) + " " + *theirs;
    if (fact && !holds(*fact, job_)) return std::string("requires ") + text_of(*fact);
    return {};
  }

  const Entry& entry_;
  const Field& field_;
  const Job& job_;
  const Document& document_;
};

}  // namespace

void check_key_requirements(const Job& job) {
  const Document& document = job.document;
  ProblemList problems;
  std::set<std::string> missing;
  bool only_usage = true;
  const auto saved = std::find_if(document.entries.begin(), document.entries.end(),
                                  [](const Entry& entry) { return entry.needs_heads; });
  if (saved != document.entries.end() && job.options.heads == 0)
    problems.add(
        {.where = {saved->origin},
         .message = "the weights of nn.MultiheadAttention do not state the number of heads",
         .hint = "give heads (--heads)"});
  for (const Entry& entry : document.entries) {
    const Checker checker(entry, job);
    std::optional<Problem> problem = checker.problem();
    if (!problem) continue;
    only_usage = only_usage && checker.is_usage();
    // What several keys lack is reported once.
    if (problem->message.starts_with("requires ") && !missing.insert(problem->message).second)
      continue;
    problems.add(std::move(*problem));
  }
  if (!problems.empty()) problems.raise(only_usage ? ErrorKind::usage : ErrorKind::data);
}

}  // namespace attn
