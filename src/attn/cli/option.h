// One option of a command, as data. The parser, help texts, manual pages, shell completions and
// suggestions for misspelt flags are generated from tables of these.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "attn/base/moved.h"

namespace attn {

template <class T>
using Store = std::function<void(const T&)>;

/// --force: takes no value.
struct SwitchValue {
  Store<bool> store;
};

/// --causal, --view=FILE: the value is optional and follows '='.
struct OptionalValue {
  std::string standalone;  ///< the value of the flag without one
  Store<std::string> store;
  std::function<bool(const std::string&)> accepts;  ///< whether a word could be meant as the value
  bool may_be_next_word = false;  ///< the next word is the value if `accepts` is true for it
};

struct TextValue {
  Store<std::string> store;
};

/// One of `words`; `store` gets its index.
struct WordValue {
  std::vector<std::string> words;
  Store<std::size_t> store;
};

struct IntegerValue {
  std::int64_t min, max;
  Store<std::int64_t> store;
};

enum class NumberRange { any, non_negative, positive, share };  // share: 0 to 1

/// A finite number.
struct NumberValue {
  NumberRange range;
  Store<double> store;
};

/// A repeatable option or a positional argument that takes several words. With a delimiter, each
/// word is split at it, and empty parts are dropped.
struct ListValue {
  char delimiter;  ///< '\0': none
  Store<std::vector<std::string>> store;
};

using OptionValue = std::variant<SwitchValue, OptionalValue, TextValue, WordValue, IntegerValue,
                                 NumberValue, ListValue>;

/// What help, manual pages and completions show of an option.
struct OptionTexts {
  std::string help;
  std::vector<std::string> suggestions = {};  ///< values that completions offer
};

struct Option {
  std::vector<std::string> names;  ///< "-o", "--output"; of a positional argument: "FILE"
  OptionValue value;
  std::string placeholder;  ///< of the value, in help: "FILE"; of an OptionalValue: "[=FILE]" or ""
  OptionTexts own_texts;
  std::string_view group = "Options";  ///< heading in help; "": not listed
  /// Makes the texts when they are shown, instead of `own_texts`. Most runs show none of them.
  std::function<OptionTexts()> describe = {};
  bool required = false;
  bool is_common = false;           ///< among those that -h lists if there are many
  bool may_be_file = false;         ///< the value, which can also be one of the suggestions
  std::string_view listed_by = {};  ///< arguments of attn that list the values: "examples list"

  bool is_positional() const { return !names[0].starts_with('-'); }
  bool is_repeatable() const { return std::holds_alternative<ListValue>(value); }
  bool takes_value() const {
    return !std::holds_alternative<SwitchValue>(value) &&
           !std::holds_alternative<OptionalValue>(value);
  }
  /// Whether the value is words between commas.
  bool takes_list() const { return placeholder == "LIST" || placeholder.ends_with(",..."); }
  /// The name in messages: the first long one, or else the first.
  const std::string& name() const;
  bool has_name(const std::string& name) const;
  OptionTexts texts() const { return describe ? describe() : own_texts; }
  /// Values that completions offer: the words of a WordValue, or the suggestions.
  std::vector<std::string> known_values() const;
};

/// Checks the values given for an option, in order, and stores them. Errors: usage,
/// "--threads: expected a whole number >= 1, found '0'", "--threads: given twice".
void store_values(const Option& option, const std::vector<std::string>& values);

/// Throws a usage error for the value "" of an option.
[[noreturn]] void refuse_empty_value(const Option& option);

/// Whether a switch with these values is on: the last one counts. Errors: usage.
bool is_switched_on(const Option& option, const std::vector<std::string>& values);

// Rows of a table. `names` are separated by commas: "-o,--output". Targets outlive the parsing.

Option flag(const std::string& names, bool& target, const std::string& help);
Option flag(const std::string& names, Store<bool> store, const std::string& help);
Option text(const std::string& names, std::string& target, const std::string& placeholder,
            const std::string& help);
Option text(const std::string& names, Store<std::string> store, const std::string& placeholder,
            const std::string& help);
Option list(const std::string& names, std::vector<std::string>& target,
            const std::string& placeholder, const std::string& help, char delimiter = '\0');
Option optional_value(const std::string& names, std::string& target, const std::string& standalone,
                      const std::string& placeholder, const std::string& help,
                      std::function<bool(const std::string&)> accepts);
Option word(const std::string& names, std::string& target, const std::vector<std::string>& words,
            const std::string& help);

/// One of several words, each with its value.
template <class T>
Option word(const std::string& names, T& target,
            const std::vector<std::pair<std::string, std::type_identity_t<T>>>& values,
            const std::string& help) {
  std::string unused;
  Option option = word(names, unused, {}, help);
  auto& [words, store] = std::get<WordValue>(option.value);
  for (const auto& [name, value] : values) words.push_back(name);
  store = [&target, values](std::size_t index) { target = values[index].second; };
  return option;
}

struct IntegerLimits {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

Option integer(const std::string& names, Store<std::int64_t> store, IntegerLimits limits,
               const std::string& placeholder, const std::string& help);

/// `target` is an integer or std::optional of one; T can represent all values within `limits`.
template <class T>
requires(!std::is_convertible_v<T, Store<std::int64_t>>) Option
    integer(const std::string& names, T& target, IntegerLimits limits,
            const std::string& placeholder, const std::string& help) {
  const auto store = [&target](std::int64_t value) {
    if constexpr (std::is_integral_v<T>)
      target = static_cast<T>(value);
    else
      target = static_cast<typename T::value_type>(value);
  };
  return integer(names, Store<std::int64_t>(store), limits, placeholder, help);
}

constexpr const char* kSeconds = "SECONDS";  ///< the placeholder of a time

Option number(const std::string& names, Store<double> store, NumberRange range,
              const std::string& placeholder, const std::string& help);

/// `target` is a double or std::optional<double>.
template <class T>
requires(!std::is_convertible_v<T, Store<double>>) Option
    number(const std::string& names, T& target, NumberRange range, const std::string& placeholder,
           const std::string& help) {
  return number(names, Store<double>([&target](double value) { target = value; }), range,
                placeholder, help);
}

/// A positional argument; its name is its placeholder.
Option positional(const std::string& name, std::string& target, const std::string& help);
Option positional(const std::string& name, std::vector<std::string>& target,
                  const std::string& help);

/// Modified copies of an option.
Option required(Option option);
Option common(Option option);
Option suggesting(Option option, const std::vector<std::string>& values);
Option or_file(Option option);
Option listed_by(std::string_view arguments, Option option);
std::vector<Option> in_group(std::string_view group, std::vector<Option> options);
template <std::size_t N>
std::vector<Option> in_group(std::string_view group, Option (&&options)[N]) {
  return in_group(group, moved(std::move(options)));
}

/// The name() of each.
std::vector<std::string> names_of(const std::vector<Option>& options);

}  // namespace attn
