#include "attn/job/field_value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cache/stored_rows.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/random/generator.h"

namespace attn {
namespace {

/// "a whole number >= 1, auto or none": the values that a field accepts.
std::string expectation(const Field& field, bool from_flag) {
  if (from_flag && !field.flag_expected.empty()) return std::string(field.flag_expected);
  if (!field.expected.empty()) return std::string(field.expected);
  std::string text;
  const std::string bound =
      !field.min  ? ""
      : field.max ? " from " + std::to_string(*field.min) + " to " + std::to_string(*field.max)
      : field.less_than
          ? " >= " + std::to_string(*field.min) + " and < " + std::to_string(*field.less_than)
          : (field.exclusive_min ? " > " : " >= ") + std::to_string(*field.min);
  switch (field.type) {
    case FieldType::tensor:
      text = "numbers, \"FILE\", \"FILE#NAME\" or a random tensor";
      break;
    case FieldType::integer:
      text = "a whole number" + bound;
      break;
    case FieldType::number:
      text = "a finite number" + bound;
      break;
    case FieldType::boolean:
      text = "true or false";
      break;
    case FieldType::integers:
      text = field.length         ? std::to_string(*field.length) + " whole numbers"
             : field.single       ? "one or more whole numbers"
             : field.may_be_empty ? "whole numbers"
                                  : "a non-empty list of whole numbers";
      text += bound;
      break;
    case FieldType::strings:
      text = field.single         ? "a string or a list of strings"
             : field.may_be_empty ? "a list of strings"
                                  : "a list of one string or more";
      break;
    case FieldType::seed:
      text = "a whole number >= 0 of at most " + std::to_string(kMaxSeedDigits) +
             " digits or a list of them";
      break;
    case FieldType::text:
      text = "a string";
      break;
    case FieldType::draws:
      text = "a list of steps";
      break;
    case FieldType::word:
      break;
  }
  std::vector<std::string> alternatives = field.words;
  if (!text.empty()) alternatives.insert(alternatives.begin(), text);
  return join_or(alternatives);
}

bool in_bounds(const Field& field, double value) {
  return std::isfinite(value) &&
         (!field.min || value > static_cast<double>(*field.min) ||
          (!field.exclusive_min && value == static_cast<double>(*field.min))) &&
         (!field.max || value <= static_cast<double>(*field.max)) &&
         (!field.less_than || value < static_cast<double>(*field.less_than));
}

bool is_whole_number(const Json& value) {
  const auto real = value.get<double>();
  return value.get<std::int64_t>() != nullptr || (real != nullptr && is_whole(*real));
}

bool are_whole(const JsonFloats& values) {
  return std::all_of(values.begin(), values.end(), [](double item) { return is_whole(item); });
}

bool is_integer_list(const Field& field, const Json& value) {
  if (double one = 0; field.single && is_whole_number(value))
    return value.as_number(one) && in_bounds(field, one);
  const auto empty = value.get<JsonArray>();
  const auto floats = value.get<JsonFloats>();
  if (empty != nullptr) return empty->empty() && field.may_be_empty && !field.length;
  if (!value.is_array() || (floats != nullptr && !are_whole(*floats))) return false;
  const std::vector<std::int64_t> list = integers_of(value);
  if (field.length && list.size() != *field.length) return false;
  for (const std::int64_t item : list)
    if (!in_bounds(field, static_cast<double>(item))) return false;
  return true;
}

bool is_string_list(const Field& field, const Json& value) {
  if (field.single && value.get<std::string>() != nullptr) return true;
  const auto list = value.get<JsonArray>();
  if (list == nullptr || (list->empty() && !field.may_be_empty)) return false;
  for (const Json& item : *list)
    if (item.get<std::string>() == nullptr) return false;
  return true;
}

bool is_seed_number(const Json& value) {
  if (const auto real = value.get<double>()) return is_whole(*real) && *real >= 0;
  if (const auto text = value.get<std::string>()) return entropy_words(*text).has_value();
  const auto number = value.get<std::int64_t>();
  return (number != nullptr && *number >= 0) || value.get<std::uint64_t>() != nullptr;
}

bool is_seed(const Json& value) {
  if (const auto row = value.get<JsonFloats>())
    return are_whole(*row) &&
           std::all_of(row->begin(), row->end(), [](double item) { return item >= 0; });
  if (const auto row = value.get<JsonIntegers>())
    return std::all_of(row->begin(), row->end(), [](std::int64_t item) { return item >= 0; });
  if (const auto list = value.get<JsonArray>())
    return !list->empty() && std::all_of(list->begin(), list->end(), is_seed_number);
  return is_seed_number(value);
}

bool fits(const Field& field, const Json& value) {
  if (const auto text = word_of(value); text != nullptr && is_word(field, *text)) return true;
  double real = 0;
  switch (field.type) {
    case FieldType::tensor:
      return true;  // checked when the tensor is read
    case FieldType::integer:
      return is_whole_number(value) && value.as_number(real) && in_bounds(field, real);
    case FieldType::number:
      return value.as_number(real) && in_bounds(field, real);
    case FieldType::boolean:
      return value.get<bool>() != nullptr;
    case FieldType::word:
      return false;
    case FieldType::text:
      return value.get<std::string>() != nullptr;
    case FieldType::integers:
      return is_integer_list(field, value);
    case FieldType::strings:
      return is_string_list(field, value);
    case FieldType::seed:
      return is_seed(value);
    case FieldType::draws:
      return value.get<JsonArray>() != nullptr;  // steps are checked when they are drawn
  }
  return false;
}

/// The text parsed as JSON if it is JSON, otherwise as a string.
Json scalar_of(const std::string& text, const std::string& name) {
  try {
    return parse_json(text, name);
  } catch (const Error&) {
    return Json{text};
  }
}

}  // namespace

bool is_whole(double value) { return std::trunc(value) == value && std::abs(value) <= 0x1p53; }

bool is_word(const Field& field, const std::string& text) {
  return std::find(field.words.begin(), field.words.end(), text) != field.words.end();
}

std::int64_t integer_of(const Json& value) {
  const auto integer = value.get<std::int64_t>();
  return integer != nullptr ? *integer : static_cast<std::int64_t>(number_of(value));
}

double number_of(const Json& value) {
  double result = 0;
  value.as_number(result);
  return result;
}

std::vector<std::int64_t> integers_of(const Json& value) {
  if (const auto list = value.get<JsonIntegers>()) return *list;
  std::vector<std::int64_t> integers;
  if (const auto floats = value.get<JsonFloats>())
    for (const double item : *floats) integers.push_back(static_cast<std::int64_t>(item));
  return integers;
}

std::vector<std::string> strings_of(const Json& value) {
  if (const auto one = value.get<std::string>()) return {*one};
  std::vector<std::string> list;
  if (const auto items = value.get<JsonArray>())
    for (const Json& item : *items) list.push_back(*item.get<std::string>());
  return list;
}

namespace {

NameKind kind_of_words(const Field& field) {
  return field.key == "convention" ? NameKind::convention : NameKind::value;
}

}  // namespace

std::optional<Problem> problem_with(const Field& field, const Json& value, bool from_flag) {
  constexpr std::size_t kMaxShownLength = 40;
  if (fits(field, value)) return std::nullopt;
  for (const auto& [word, reason] : field.refused)
    if (word_of(value) != nullptr && *word_of(value) == word)
      return Problem{.message = "'" + word + "': " + reason};
  std::string found = value.kind();
  if (const auto text = value.get<std::string>())
    found = "'" + printable(*text) + "'" + did_you_mean(*text, field.words, kind_of_words(field));
  else if (const std::string written = to_json(value); written.size() <= kMaxShownLength)
    found = printable(written);
  const std::string example =
      field.example.empty() ? "" : ", such as " + std::string(field.example);
  return Problem{.expected = expectation(field, from_flag) + example, .found = found};
}

std::optional<Json> number_from_flag(const std::string& text) {
  Json value = scalar_of(text, "");
  double number = 0;
  const bool is_json = value.get<std::string>() == nullptr;  // "NaN" is a string in JSON
  if (is_json) return value.as_number(number) ? std::optional(std::move(value)) : std::nullopt;
  const auto parsed = parse_decimal(text);
  return parsed ? std::optional(Json{*parsed}) : std::nullopt;
}

namespace {

/// Whether one number is a value for all that the tensor describes.
bool may_be_one_number(const Field& field) {
  constexpr std::array kLengths = {Input::key_lengths, Input::key_starts, Input::query_lengths,
                                   Input::prefix_lengths};
  return field.input &&
         (storage_described_by(*field.input) != nullptr ||
          std::find(kLengths.begin(), kLengths.end(), *field.input) != kLengths.end());
}

bool starts_with_bracket(std::string_view text) {
  return text.starts_with('[') || text.starts_with('{');
}

/// "[CLS],a,b": not JSON, and the first of several strings ends with the bracket's counterpart.
bool is_list_of_words(const std::string& text) {
  const std::size_t comma = text.find(',');
  const char last = text.front() == '[' ? ']' : '}';
  return comma != text.npos && text[comma - 1] == last && word_of(scalar_of(text, "")) != nullptr;
}

Json strings_from_flag(const std::string& text, const std::string& flag) {
  if (starts_with_bracket(text) && !is_list_of_words(text)) return parse_json(text, flag);
  JsonArray list;
  for (const std::string& part : split_at_commas(text)) list.push_back(Json{part});
  return Json{list};
}

}  // namespace

Json value_from_flag(const Field& field, const std::string& text, const std::string& flag) {
  if (field.type == FieldType::strings) return strings_from_flag(text, flag);
  if (starts_with_bracket(text) && !text.starts_with(kLayerWord)) return parse_json(text, flag);
  switch (field.type) {
    case FieldType::tensor:
      if (may_be_one_number(field))
        if (std::optional<Json> number = number_from_flag(text)) return *number;
      return Json{text};
    case FieldType::text:
    case FieldType::word:
      return Json{text};
    case FieldType::integers:
      if (field.single && text.find(',') == text.npos) return scalar_of(text, flag);
      try {
        return parse_json("[" + text + "]", flag);
      } catch (const Error&) {
        return Json{text};
      }
    case FieldType::seed: {
      // The seeds 42 and [42] differ in NumPy.
      if (text.find(',') == std::string::npos) return scalar_of(text, flag);
      JsonArray list;
      for (const std::string& part : split_at_commas(text))
        if (!part.empty()) list.push_back(scalar_of(part, flag));
      return Json{list};
    }
    case FieldType::number:
      if (std::optional<Json> number = number_from_flag(text)) return *number;
      return scalar_of(text, flag);
    default:
      return scalar_of(text, flag);
  }
}

}  // namespace attn
