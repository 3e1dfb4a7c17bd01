#include "attn/job/fields.h"

#include <algorithm>
#include <unordered_map>

#include "attn/job/conventions.h"
#include "attn/job/field_tables.h"

namespace attn {
namespace {

std::vector<std::string> convention_names() {
  std::vector<std::string> names;
  for (const Convention& convention : conventions()) names.emplace_back(convention.name);
  return names;
}

}  // namespace

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
      {.key = "convention",
       .flag = "--convention",
       .placeholder = "NAME",
       .what = "mean what a library means ('attn conventions'); other options still win",
       .words = convention_names()},
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
       .what = "what to compute and show; default: scores,weights,context (and output with W_O)",
       .may_be_empty = false},
  };
}

std::size_t place_among(const std::vector<std::string>& words, const Json& value) {
  return static_cast<std::size_t>(std::find(words.begin(), words.end(), *word_of(value)) -
                                  words.begin());
}

double number_of(const Json& value) {
  double result = 0;
  value.as_number(result);
  return result;
}

std::int64_t integer_of(const Json& value) {
  const auto* whole = value.get<std::int64_t>();
  return whole != nullptr ? *whole : static_cast<std::int64_t>(number_of(value));
}

std::vector<std::int64_t> integers_of(const Json& value) {
  if (const auto* list = value.get<JsonIntegers>()) return *list;
  std::vector<std::int64_t> whole;
  if (const auto* floats = value.get<JsonFloats>())
    for (const double item : *floats) whole.push_back(static_cast<std::int64_t>(item));
  return whole;
}

Field number_field(std::string key, std::string flag, std::string what,
                   std::optional<std::int64_t> minimum, double& (*member)(Options&)) {
  return {.key = std::move(key),
          .flag = std::move(flag),
          .form = FieldForm::number,
          .placeholder = "X",
          .what = std::move(what),
          .minimum = minimum,
          .apply = [member](const Json& v, Options& o) { member(o) = number_of(v); }};
}

Field switch_field(std::string key, std::string flag, std::string what, bool& (*member)(Options&)) {
  return {.key = std::move(key),
          .flag = std::move(flag),
          .form = FieldForm::boolean,
          .placeholder = "",
          .what = std::move(what),
          .apply = [member](const Json& v, Options& o) { member(o) = *v.get<bool>(); }};
}

const std::vector<Field>& job_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (const auto& part : {tensor_fields(), attention_fields(), position_fields(),
                             rotary_fields(), document_fields()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view key) {
  static const std::unordered_map<std::string_view, const Field*> places = [] {
    std::unordered_map<std::string_view, const Field*> all;
    for (const Field& field : job_fields()) all.emplace(field.key, &field);
    return all;
  }();
  const auto place = places.find(key);
  return place == places.end() ? nullptr : place->second;
}

}  // namespace attn
