#include "attn/job/fields.h"

#include <cmath>
#include <utility>

#include "attn/core/inputs.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

std::int64_t integer(const Json& value) { return *value.get<std::int64_t>(); }

double number(const Json& value) {
  double result = 0;
  value.as_number(result);
  return result;
}

const std::string* word(const Json& value) { return value.get<std::string>(); }

std::vector<std::int64_t> integers(const Json& value) {
  const auto* list = value.get<JsonIntegers>();
  return list != nullptr ? *list : std::vector<std::int64_t>{};
}

Field tensor(std::string key, std::string flag, std::string what) {
  return {.key = std::move(key),
          .flag = std::move(flag),
          .form = FieldForm::tensor,
          .placeholder = "FILE",
          .what = std::move(what)};
}

/// A field whose value is one word of an enum.
template <class Enum>
Field choice(std::string key, std::string flag, std::string what,
             std::vector<std::pair<std::string, Enum>> meanings, Enum& (*member)(Options&)) {
  Field field{.key = std::move(key),
              .flag = std::move(flag),
              .form = FieldForm::word,
              .placeholder = "WORD",
              .what = std::move(what)};
  for (const auto& [text, meaning] : meanings) field.words.push_back(text);
  field.apply = [meanings = std::move(meanings), member](const Json& value, Options& options) {
    for (const auto& [text, meaning] : meanings)
      if (const std::string* given = word(value); given != nullptr && *given == text)
        member(options) = meaning;
  };
  return field;
}

void apply_scale(const Json& value, Options& options) {
  const std::string* given = word(value);
  if (given == nullptr)
    options.scale = {Scale::Kind::number, number(value)};
  else
    options.scale = {*given == "auto" ? Scale::Kind::automatic : Scale::Kind::none, 1};
}

void apply_causal(const Json& value, Options& options) {
  const std::string* given = word(value);
  if (given != nullptr)
    options.causal = *given == "top-left" ? Causal::top_left : Causal::bottom_right;
  else
    options.causal = *value.get<bool>() ? Causal::top_left : Causal::none;
}

void apply_embedding_scale(const Json& value, Options& options) {
  options.position.embedding_scale_sqrt = word(value) != nullptr;
  if (word(value) == nullptr) options.position.embedding_scale = number(value);
}

std::vector<Field> tensor_fields() {
  return {
      tensor("embeddings", "--embeddings", "token embeddings X (L, M): the queries' side"),
      tensor("memory", "--memory", "what keys and values come from (S, M); default: embeddings"),
      tensor("W_Q", "--wq", "query weights (M, H*D)"),
      tensor("W_K", "--wk", "key weights (M, G*D)"),
      tensor("W_V", "--wv", "value weights (M, G*Dv)"),
      tensor("W_O", "--wo", "output weights (H*Dv, M)"),
      tensor("b_Q", "--bq", "query bias (H*D)"),
      tensor("b_K", "--bk", "key bias (G*D)"),
      tensor("b_V", "--bv", "value bias (G*Dv)"),
      tensor("b_O", "--bo", "output bias (M)"),
      tensor("Q", "--q", "queries (L, D), instead of embeddings and weights"),
      tensor("K", "--k", "keys (S, D)"),
      tensor("V", "--v", "values (S, Dv); default: the keys"),
      tensor("mask", "--mask", "boolean (true: may attend) or additive, broadcast to (B, H, L, S)"),
  };
}

std::vector<Field> document_fields() {
  return {
      {.key = "schema",
       .flag = "",
       .placeholder = "",
       .what = "version of this document",
       .words = {"attn/1"}},
      {.key = "tokens",
       .flag = "--tokens",
       .form = FieldForm::strings,
       .placeholder = "A,B,...",
       .what = "labels of the tokens, kept with the results"},
      {.key = "seed",
       .flag = "--seed",
       .form = FieldForm::seed,
       .placeholder = "N",
       .what = "NumPy seed (a number or a list) that random tensors are drawn from"},
      {.key = "generator",
       .flag = "--generator",
       .placeholder = "WORD",
       .what = "whose stream the seed starts",
       .words = {"RandomState", "default_rng"}},
      {.key = "outputs",
       .flag = "--outputs",
       .form = FieldForm::strings,
       .placeholder = "LIST",
       .what = "what to compute and show; default: scores,weights,context (and output with W_O)"},
  };
}

std::vector<Field> option_fields() {
  std::vector<Field> fields = {
      {.key = "heads",
       .flag = "--heads",
       .form = FieldForm::integer,
       .placeholder = "H",
       .what = "query heads: columns are split into H equal parts",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.heads = integer(v); }},
      {.key = "kv_heads",
       .flag = "--kv-heads",
       .form = FieldForm::integer,
       .placeholder = "G",
       .what = "key/value heads, each shared by H/G query heads; default: H",
       .minimum = 1,
       .apply = [](const Json& v, Options& o) { o.kv_heads = integer(v); }},
      choice<Layout>("layout", "--layout", "axes of 4-D queries, keys and values",
                     {{"bhld", Layout::bhld}, {"blhd", Layout::blhd}},
                     [](Options& o) -> Layout& { return o.layout; }),
      choice<Score>("score", "--score", "score function",
                    {{"dot", Score::dot}, {"cosine", Score::cosine}},
                    [](Options& o) -> Score& { return o.score; }),
      {.key = "scale",
       .flag = "--scale",
       .form = FieldForm::number,
       .placeholder = "X",
       .what = "factor on the scores: auto is 1/sqrt(D), none is 1, or a number",
       .words = {"auto", "none"},
       .apply = apply_scale},
      {.key = "softcap",
       .flag = "--softcap",
       .form = FieldForm::number,
       .placeholder = "C",
       .what = "bound scaled scores to (-C, C): C tanh(s / C)",
       .minimum = 0,
       .apply = [](const Json& v, Options& o) { o.softcap = number(v); }},
      {.key = "causal",
       .flag = "--causal",
       .form = FieldForm::boolean,
       .placeholder = "",
       .what = "query i sees keys j <= i (top-left), or j <= i + S - L (=bottom-right)",
       .words = {"top-left", "bottom-right"},
       .apply = apply_causal},
      {.key = "window",
       .flag = "--window",
       .form = FieldForm::integers,
       .placeholder = "LEFT,RIGHT",
       .what = "query i sees keys i-LEFT to i+RIGHT only; -1 is open",
       .minimum = -1,
       .length = 2,
       .apply =
           [](const Json& v, Options& o) {
             o.window = {integers(v)[0], integers(v)[1]};
           }},
      choice<MaskPolarity>("mask_polarity", "--mask-polarity", "what true in a boolean mask means",
                           {{"attend", MaskPolarity::attend}, {"ignore", MaskPolarity::ignore}},
                           [](Options& o) -> MaskPolarity& { return o.mask_polarity; }),
      choice<EmptyRows>(
          "empty_rows", "--empty-rows", "weights of a query that sees no key",
          {{"zero", EmptyRows::zero}, {"uniform", EmptyRows::uniform}, {"nan", EmptyRows::nan}},
          [](Options& o) -> EmptyRows& { return o.empty_rows; }),
      choice<SoftmaxAxis>("softmax.axis", "--softmax-axis",
                          "softmax over each query's keys, or the whole matrix",
                          {{"keys", SoftmaxAxis::keys}, {"all", SoftmaxAxis::all}},
                          [](Options& o) -> SoftmaxAxis& { return o.softmax_axis; }),
      {.key = "rows",
       .flag = "--rows",
       .form = FieldForm::integers,
       .placeholder = "I,J,...",
       .what = "compute these queries only; negative counts from the end",
       .apply = [](const Json& v, Options& o) { o.rows = integers(v); }},
      choice<Compute>("compute", "--compute", "precision of the arithmetic",
                      {{"auto", Compute::automatic}, {"f32", Compute::f32}, {"f64", Compute::f64}},
                      [](Options& o) -> Compute& { return o.compute; }),
      choice<Path>("path", "--path", "which code computes: the fast kernels where they can, or not",
                   {{"auto", Path::automatic}, {"reference", Path::reference}},
                   [](Options& o) -> Path& { return o.path; }),
  };
  return fields;
}

std::vector<Field> position_fields() {
  return {
      choice<Position::Kind>(
          "position.kind", "--position", "positional encoding added to the embeddings",
          {{"none", Position::Kind::none}, {"sinusoidal", Position::Kind::sinusoidal}},
          [](Options& o) -> Position::Kind& { return o.position.kind; }),
      {.key = "position.base",
       .flag = "--position-base",
       .form = FieldForm::number,
       .placeholder = "X",
       .what = "base of the wavelengths; default: 10000",
       .minimum = 0,
       .apply = [](const Json& v, Options& o) { o.position.base = number(v); }},
      {.key = "position.first",
       .flag = "--position-first",
       .form = FieldForm::integer,
       .placeholder = "N",
       .what = "position of the first token; default: 0",
       .apply = [](const Json& v, Options& o) { o.position.first = integer(v); }},
      choice<Position::Exponent>(
          "position.exponent", "--position-exponent", "exponent of column pair i: 2i/M, or 4i/M",
          {{"standard", Position::Exponent::standard}, {"doubled", Position::Exponent::doubled}},
          [](Options& o) -> Position::Exponent& { return o.position.exponent; }),
      {.key = "position.last_column_zero",
       .flag = "--last-column-zero",
       .form = FieldForm::boolean,
       .placeholder = "",
       .what = "leave the last column of an odd width zero, as a loop over pairs does",
       .apply = [](const Json& v, Options& o) { o.position.last_column_zero = *v.get<bool>(); }},
      {.key = "position.embedding_scale",
       .flag = "--embedding-scale",
       .form = FieldForm::number,
       .placeholder = "X",
       .what = "factor on the embeddings first: a number, or sqrt for sqrt(M)",
       .words = {"sqrt"},
       .apply = apply_embedding_scale},
  };
}

void append(std::vector<Field>& fields, const std::vector<Field>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
}

}  // namespace

const std::vector<Field>& job_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = tensor_fields();
    append(all, option_fields());
    append(all, position_fields());
    append(all, document_fields());
    return all;
  }();
  return fields;
}

const Field* find_field(const std::string& key) {
  for (const Field& field : job_fields())
    if (field.key == key) return &field;
  return nullptr;
}

}  // namespace attn
