#include "attn/cli/option.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

std::vector<std::string> split(const std::string& text, char delimiter) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(delimiter, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse_value(const Option& option, const std::string& expected,
                               const std::string& found) {
  fail_usage(option.name() + ": expected " + expected + ", found '" + printable(found) + "'");
}

[[noreturn]] void refuse_repeated(const Option& option, std::size_t count) {
  fail_usage(option.name() + ": given " +
             (count == 2 ? "twice" : std::to_string(count) + " times"));
}

/// "--causal --causal=false".
void refuse_contradiction(const Option& option, const std::vector<std::string>& values) {
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end())
    refuse_repeated(option, values.size());
}

bool parse_bool(const Option& option, const std::string& value) {
  std::string text = value;
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const char* yes : {"true", "on", "yes", "1"})
    if (text == yes) return true;
  for (const char* no : {"false", "off", "no", "0"})
    if (text == no) return false;
  refuse_value(option, "true or false", value);
}

std::int64_t parse_integer(const Option& option, const IntegerValue& integer,
                           const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end && number >= integer.min && number <= integer.max)
    return number;
  using Limits = std::numeric_limits<std::int64_t>;
  std::string expected = "a whole number";
  if (integer.max != Limits::max())
    expected += " from " + std::to_string(integer.min) + " to " + std::to_string(integer.max);
  else if (integer.min != Limits::min())
    expected += " >= " + std::to_string(integer.min);
  refuse_value(option, expected, text);
}

bool is_in(NumberRange range, double number) {
  switch (range) {
    case NumberRange::any:
      return true;
    case NumberRange::non_negative:
      return number >= 0;
    case NumberRange::positive:
      return number > 0;
    case NumberRange::share:
      return number >= 0 && number <= 1;
  }
  return false;
}

double parse_number(const Option& option, NumberRange range, const std::string& text) {
  const std::optional<double> number = parse_decimal(text);
  if (number && is_in(range, *number)) return *number;
  if (range == NumberRange::share) refuse_value(option, "a number from 0 to 1", text);
  const std::size_t unit = text.find_last_of("0123456789.") + 1;  // where it begins
  const bool has_unit =
      option.placeholder == kSeconds && unit < text.size() && parse_decimal(text.substr(0, unit));
  const std::string what = has_unit ? "seconds without a unit" : "a finite number";
  refuse_value(option,
               what + (range == NumberRange::any            ? ""
                       : range == NumberRange::non_negative ? " >= 0"
                                                            : " > 0"),
               text);
}

std::size_t index_of_word(const Option& option, const std::vector<std::string>& words,
                          const std::string& text) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  fail_usage(option.name() + ": expected " + join_or(words) + ", found '" + printable(text) + "'" +
             did_you_mean(text, words, NameKind::value));
}

/// Stores the values of one kind of option.
struct Storer {
  const Option& option;
  const std::vector<std::string>& values;

  const std::string& only() const {
    if (values.size() > 1) refuse_repeated(option, values.size());
    return values[0];
  }

  void operator()(const SwitchValue& form) const { form.store(is_switched_on(option, values)); }
  void operator()(const OptionalValue& form) const {
    refuse_contradiction(option, values);
    form.store(values.back());
  }
  void operator()(const TextValue& form) const { form.store(only()); }
  void operator()(const WordValue& form) const {
    form.store(index_of_word(option, form.words, only()));
  }
  void operator()(const IntegerValue& form) const {
    form.store(parse_integer(option, form, only()));
  }
  void operator()(const NumberValue& form) const {
    form.store(parse_number(option, form.range, only()));
  }
  void operator()(const ListValue& form) const {
    if (form.delimiter == '\0') return form.store(values);
    std::vector<std::string> parts;
    for (const std::string& value : values)
      for (std::string& part : split(value, form.delimiter)) parts.push_back(std::move(part));
    if (parts.empty()) refuse_value(option, "values", values.back());
    form.store(parts);
  }
};

Option make(const std::string& names, OptionValue value, const std::string& placeholder,
            const std::string& help) {
  return {split(names, ','), std::move(value), placeholder, {help}};
}

}  // namespace

const std::string& Option::name() const {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto found = std::find_if(names.begin(), names.end(), is_long);
  return found != names.end() ? *found : names[0];
}

bool Option::has_name(const std::string& wanted) const {
  return std::find(names.begin(), names.end(), wanted) != names.end();
}

std::vector<std::string> Option::known_values() const {
  const WordValue* const word = std::get_if<WordValue>(&value);
  return word != nullptr ? word->words : texts().suggestions;
}

void refuse_empty_value(const Option& option) {
  fail_usage(option.name() + ": expected a value, found ''");
}

void store_values(const Option& option, const std::vector<std::string>& values) {
  // An empty value, for example from an unset shell variable, must not be treated as an absent
  // option.
  if (option.takes_value())
    for (const std::string& value : values)
      if (value.empty()) refuse_empty_value(option);
  std::visit(Storer{option, values}, option.value);
}

bool is_switched_on(const Option& option, const std::vector<std::string>& values) {
  refuse_contradiction(option, values);
  return parse_bool(option, values.back());
}

Option flag(const std::string& names, bool& target, const std::string& help) {
  return flag(
      names, [&target](bool on) { target = on; }, help);
}

Option flag(const std::string& names, Store<bool> store, const std::string& help) {
  return make(names, SwitchValue{std::move(store)}, "", help);
}

Option text(const std::string& names, std::string& target, const std::string& placeholder,
            const std::string& help) {
  return text(
      names, [&target](const std::string& value) { target = value; }, placeholder, help);
}

Option text(const std::string& names, Store<std::string> store, const std::string& placeholder,
            const std::string& help) {
  return make(names, TextValue{std::move(store)}, placeholder, help);
}

Option list(const std::string& names, std::vector<std::string>& target,
            const std::string& placeholder, const std::string& help, char delimiter) {
  const auto store = [&target](const std::vector<std::string>& values) { target = values; };
  return make(names, ListValue{delimiter, store}, placeholder, help);
}

Option optional_value(const std::string& names, std::string& target, const std::string& standalone,
                      const std::string& placeholder, const std::string& help,
                      std::function<bool(const std::string&)> accepts) {
  const auto store = [&target](const std::string& value) { target = value; };
  return make(names, OptionalValue{standalone, store, std::move(accepts), false}, placeholder,
              help);
}

Option word(const std::string& names, std::string& target, const std::vector<std::string>& words,
            const std::string& help) {
  const auto store = [&target, words](std::size_t index) { target = words[index]; };
  return make(names, WordValue{words, store}, "WORD", help);
}

Option integer(const std::string& names, Store<std::int64_t> store, IntegerLimits limits,
               const std::string& placeholder, const std::string& help) {
  return make(names, IntegerValue{limits.min, limits.max, std::move(store)}, placeholder, help);
}

Option number(const std::string& names, Store<double> store, NumberRange range,
              const std::string& placeholder, const std::string& help) {
  return make(names, NumberValue{range, std::move(store)}, placeholder, help);
}

Option positional(const std::string& name, std::string& target, const std::string& help) {
  return text(name, target, name, help);
}

Option positional(const std::string& name, std::vector<std::string>& target,
                  const std::string& help) {
  return list(name, target, name, help);
}

Option required(Option option) {
  option.required = true;
  return option;
}

Option common(Option option) {
  option.is_common = true;
  return option;
}

Option suggesting(Option option, const std::vector<std::string>& values) {
  option.own_texts.suggestions = values;
  return option;
}

Option or_file(Option option) {
  option.may_be_file = true;
  return option;
}

Option listed_by(std::string_view arguments, Option option) {
  option.listed_by = arguments;
  return option;
}

std::vector<Option> in_group(std::string_view group, std::vector<Option> options) {
  for (Option& option : options) option.group = group;
  return options;
}

std::vector<std::string> names_of(const std::vector<Option>& options) {
  return texts_of(options, &Option::name);
}

}  // namespace attn
