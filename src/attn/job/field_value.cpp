// What a field's value may be, and what a flag's text means.
#include <algorithm>
#include <cmath>

#include "attn/base/error.h"
#include "attn/base/numbers.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/job/field_tables.h"
#include "attn/job/fields.h"
#include "attn/random/generator.h"

namespace attn {
namespace {

/// "a whole number >= 1 or one of auto, none": what a field takes, for messages.
std::string expectation(const Field& field) {
  std::string text;
  const std::string bound = field.minimum
                                ? (field.above ? " > " : " >= ") + std::to_string(*field.minimum)
                                : std::string();
  switch (field.form) {
    case FieldForm::tensor:
      text = "numbers, \"FILE\", \"FILE#NAME\" or a random draw";
      break;
    case FieldForm::integer:
      text = "a whole number" + bound;
      break;
    case FieldForm::number:
      text = "a finite number" + bound;
      break;
    case FieldForm::boolean:
      text = "true or false";
      break;
    case FieldForm::integers:
      text = field.length ? std::to_string(*field.length) + " whole numbers" : "whole numbers";
      text += bound;
      break;
    case FieldForm::strings:
      text = field.may_be_empty ? "a list of strings" : "a list of one string or more";
      break;
    case FieldForm::seed:
      text = "a whole number >= 0 of at most " + std::to_string(kMostSeedDigits) +
             " digits or a list of them";
      break;
    case FieldForm::word:
      break;
  }
  for (std::size_t i = 0; i < field.words.size(); ++i)
    text += (text.empty() ? "" : i + 1 == field.words.size() ? " or " : ", ") + field.words[i];
  return text;
}

bool in_bounds(const Field& field, double value) {
  return std::isfinite(value) && (!field.minimum || value > static_cast<double>(*field.minimum) ||
                                  (!field.above && value == static_cast<double>(*field.minimum)));
}

bool is_word(const Field& field, const Json& value) {
  const std::string* text = value.get<std::string>();
  if (text == nullptr) return false;
  for (const std::string& word : field.words)
    if (word == *text) return true;
  return false;
}

/// JSON Schema takes 2.0 for an integer, and so do we, as far as floats are exact.
bool is_whole(double value) { return std::trunc(value) == value && std::abs(value) <= 0x1p53; }

bool is_whole(const Json& value) {
  const auto* real = value.get<double>();
  return value.get<std::int64_t>() != nullptr || (real != nullptr && is_whole(*real));
}

bool are_whole(const JsonFloats& values) {
  return std::all_of(values.begin(), values.end(), [](double item) { return is_whole(item); });
}

bool is_integer_list(const Field& field, const Json& value) {
  const auto* empty = value.get<JsonArray>();
  const auto* floats = value.get<JsonFloats>();
  if (empty != nullptr) return empty->empty() && !field.length;
  if (!value.is_array() || (floats != nullptr && !are_whole(*floats))) return false;
  const std::vector<std::int64_t> list = integers_of(value);
  if (field.length && list.size() != *field.length) return false;
  for (const std::int64_t item : list)
    if (!in_bounds(field, static_cast<double>(item))) return false;
  return true;
}

bool is_string_list(const Field& field, const Json& value) {
  const auto* list = value.get<JsonArray>();
  if (list == nullptr || (list->empty() && !field.may_be_empty)) return false;
  for (const Json& item : *list)
    if (item.get<std::string>() == nullptr) return false;
  return true;
}

bool is_seed_number(const Json& value) {
  if (const auto* real = value.get<double>()) return is_whole(*real) && *real >= 0;
  if (const auto* text = value.get<std::string>()) return entropy_words(*text).has_value();
  const auto* number = value.get<std::int64_t>();
  return (number != nullptr && *number >= 0) || value.get<std::uint64_t>() != nullptr;
}

bool is_seed(const Json& value) {
  if (const auto* row = value.get<JsonFloats>())
    return are_whole(*row) &&
           std::all_of(row->begin(), row->end(), [](double item) { return item >= 0; });
  if (const auto* row = value.get<JsonIntegers>())
    return std::all_of(row->begin(), row->end(), [](std::int64_t item) { return item >= 0; });
  if (const auto* list = value.get<JsonArray>())
    return !list->empty() && std::all_of(list->begin(), list->end(), is_seed_number);
  return is_seed_number(value);
}

bool fits(const Field& field, const Json& value) {
  if (is_word(field, value)) return true;
  double real = 0;
  switch (field.form) {
    case FieldForm::tensor:
      return true;  // looked at when it is read
    case FieldForm::integer:
      return is_whole(value) && value.as_number(real) && in_bounds(field, real);
    case FieldForm::number:
      return value.as_number(real) && in_bounds(field, real);
    case FieldForm::boolean:
      return value.get<bool>() != nullptr;
    case FieldForm::word:
      return false;
    case FieldForm::integers:
      return is_integer_list(field, value);
    case FieldForm::strings:
      return is_string_list(field, value);
    case FieldForm::seed:
      return is_seed(value);
  }
  return false;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

/// JSON when it is JSON, otherwise the text itself.
Json scalar_of(const std::string& text, const std::string& name) {
  try {
    return parse_json(text, name);
  } catch (const Error&) {
    return Json{text};
  }
}

}  // namespace

std::optional<Problem> problem_with(const Field& field, const Json& value) {
  constexpr std::size_t kLongestShown = 40;
  if (fits(field, value)) return std::nullopt;
  std::string found = value.kind();
  if (const std::string* text = value.get<std::string>())
    found = "'" + printable(*text) + "'" + did_you_mean(*text, field.words);
  else if (const std::string written = to_json(value); written.size() <= kLongestShown)
    found = printable(written);
  return Problem{.expected = expectation(field), .found = found};
}

std::optional<Json> number_of_flag(const std::string& text) {
  Json value = scalar_of(text, "");
  double number = 0;
  const bool is_json = value.get<std::string>() == nullptr;  // and no name of what is not finite
  if (is_json) return value.as_number(number) ? std::optional(std::move(value)) : std::nullopt;
  const auto typed = number_typed(text);
  return typed ? std::optional(Json{*typed}) : std::nullopt;
}

Json value_of_flag(const Field& field, const std::string& text, const std::string& name) {
  const bool inline_json = !text.empty() && (text[0] == '[' || text[0] == '{');
  // "[CLS],a,b" looks like JSON and is not.
  if (inline_json && field.form != FieldForm::strings) return parse_json(text, name);
  switch (field.form) {
    case FieldForm::tensor:
    case FieldForm::word:
      return Json{text};
    case FieldForm::strings: {
      if (Json written = inline_json ? scalar_of(text, name) : Json{}; written.is_array())
        return written;
      JsonArray list;
      for (const std::string& part : split(text)) list.push_back(Json{part});
      return Json{list};
    }
    case FieldForm::integers:
      try {
        return parse_json("[" + text + "]", name);
      } catch (const Error&) {
        return Json{text};
      }
    case FieldForm::seed: {
      // One number may stand alone: to NumPy 42 is not [42].
      if (text.find(',') == std::string::npos) return scalar_of(text, name);
      JsonArray list;
      for (const std::string& part : split(text))
        if (!part.empty()) list.push_back(scalar_of(part, name));
      return Json{list};
    }
    case FieldForm::number:
      if (std::optional<Json> number = number_of_flag(text)) return *number;
      return scalar_of(text, name);
    default:
      return scalar_of(text, name);
  }
}

}  // namespace attn
