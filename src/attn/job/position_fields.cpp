#include "attn/job/field_tables.h"

namespace attn {
namespace {

void apply_embedding_scale(const Json& value, Options& options) {
  options.position.embedding_scale_sqrt = word_of(value) != nullptr;
  if (word_of(value) == nullptr) options.position.embedding_scale = number_of(value);
}

}  // namespace

std::vector<Field> position_fields() {
  return {
      choice<Position::Kind>(
          "position.kind", "--position", "positional encoding added to the embeddings",
          {{"none", Position::Kind::none}, {"sinusoidal", Position::Kind::sinusoidal}},
          [](Options& o) -> Position::Kind& { return o.position.kind; }),
      above(number_field("position.base", "--position-base",
                         "base of the wavelengths; default: 10000", 0,
                         [](Options& o) -> double& { return o.position.base; })),
      {.key = "position.first",
       .flag = "--position-first",
       .form = FieldForm::integer,
       .placeholder = "N",
       .what = "position of the first token; default: 0",
       .apply = [](const Json& v, Options& o) { o.position.first = integer_of(v); }},
      choice<Position::Exponent>(
          "position.exponent", "--position-exponent", "exponent of column pair i: 2i/M, or 4i/M",
          {{"standard", Position::Exponent::standard}, {"doubled", Position::Exponent::doubled}},
          [](Options& o) -> Position::Exponent& { return o.position.exponent; }),
      switch_field("position.last_column_zero", "--last-column-zero",
                   "leave the last column of an odd width zero, as a loop over pairs does",
                   [](Options& o) -> bool& { return o.position.last_column_zero; }),
      {.key = "position.embedding_scale",
       .flag = "--embedding-scale",
       .form = FieldForm::number,
       .placeholder = "X",
       .what = "factor on the embeddings first: a number, or sqrt for sqrt(M)",
       .words = {"sqrt"},
       .apply = apply_embedding_scale},
  };
}

std::vector<Field> rotary_fields() {
  const auto whole = [](const char* key, const char* flag, const char* what,
                        std::int64_t& (*member)(Options&)) {
    return Field{.key = key,
                 .flag = flag,
                 .form = FieldForm::integer,
                 .placeholder = "N",
                 .what = what,
                 .minimum = 1,
                 .apply = [member](const Json& v, Options& o) { member(o) = integer_of(v); }};
  };
  return {
      choice<QkNorm>("qk_norm", "--qk-norm", "queries and keys normalised, head by head",
                     {{"none", QkNorm::none}, {"rms", QkNorm::rms}, {"l2", QkNorm::l2}},
                     [](Options& o) -> QkNorm& { return o.qk_norm; }),
      number_field("qk_norm_epsilon", "--qk-norm-epsilon",
                   "keeps qk_norm from dividing by 0; default: 1e-6 (rms), 1e-12 (l2)", 0,
                   [](Options& o) -> double& { return o.qk_norm_epsilon; }),
      choice<Rotary::Kind>("rotary.kind", "--rotary",
                           "rotary positions: which columns of queries and keys are pairs",
                           {{"none", Rotary::Kind::none},
                            {"half", Rotary::Kind::half},
                            {"interleaved", Rotary::Kind::interleaved}},
                           [](Options& o) -> Rotary::Kind& { return o.rotary.kind; }),
      whole("rotary.width", "--rotary-width", "columns that are turned; default: all D",
            [](Options& o) -> std::int64_t& { return o.rotary.width; }),
      above(number_field("rotary.base", "--rotary-base", "base of the wavelengths; default: 10000",
                         0, [](Options& o) -> double& { return o.rotary.base; })),
      choice<Rotary::Scaling>("rotary.scaling", "--rotary-scaling",
                              "how angles are scaled to longer texts",
                              {{"none", Rotary::Scaling::none},
                               {"linear", Rotary::Scaling::linear},
                               {"ntk", Rotary::Scaling::ntk},
                               {"yarn", Rotary::Scaling::yarn},
                               {"llama3", Rotary::Scaling::llama3}},
                              [](Options& o) -> Rotary::Scaling& { return o.rotary.scaling; }),
      above(number_field("rotary.factor", "--rotary-factor", "how many times longer; default: 1", 0,
                         [](Options& o) -> double& { return o.rotary.factor; })),
      whole("rotary.original_length", "--rotary-original-length",
            "length that the model was trained on (yarn, llama3)",
            [](Options& o) -> std::int64_t& { return o.rotary.original_length; }),
      number_field("rotary.low_frequency_factor", "--rotary-low", "of llama3; default: 1", 0,
                   [](Options& o) -> double& { return o.rotary.low_frequency_factor; }),
      number_field("rotary.high_frequency_factor", "--rotary-high", "of llama3; default: 4", 0,
                   [](Options& o) -> double& { return o.rotary.high_frequency_factor; }),
      above(number_field("rotary.beta_fast", "--rotary-beta-fast", "of yarn; default: 32", 0,
                         [](Options& o) -> double& { return o.rotary.beta_fast; })),
      above(number_field("rotary.beta_slow", "--rotary-beta-slow", "of yarn; default: 1", 0,
                         [](Options& o) -> double& { return o.rotary.beta_slow; })),
      number_field("rotary.attention_factor", "--rotary-attention-factor",
                   "of yarn, on the cosines and sines; default: 0.1 log(factor) + 1", 0,
                   [](Options& o) -> double& { return o.rotary.attention_factor; }),
  };
}

}  // namespace attn
