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
      number_field("position.base", "--position-base", "base of the wavelengths; default: 10000", 0,
                   [](Options& o) -> double& { return o.position.base; }),
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

}  // namespace attn
