#include "attn/cli/values.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "attn/base/numbers.h"
#include "attn/base/suggestion.h"

namespace attn {
namespace {

/// The whole of `text` as a number.
std::optional<std::int64_t> whole_number_in(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

std::string expectation(std::int64_t least, std::int64_t most) {
  using Limits = std::numeric_limits<std::int64_t>;
  std::string text = "a whole number";
  if (least == Limits::min()) return text;
  if (most == Limits::max()) return text + " >= " + std::to_string(least);
  return text + " from " + std::to_string(least) + " to " + std::to_string(most);
}

/// CLI11 puts the flag and ": " before it.
std::string refusal(const std::string& expected, const std::string& found) {
  return "expected " + expected + ", found '" + found + "'";
}

/// As completions find them in the option's type (cli/subcommand.cpp).
std::string in_braces(const std::vector<std::string>& words) {
  std::string listed;
  for (const std::string& word : words) listed += (listed.empty() ? "{" : ",") + word;
  return listed + "}";
}

}  // namespace

CLI::Option* take_whole(CLI::Option* option, std::int64_t least, std::int64_t most) {
  const auto check = [=](std::string& text) {
    const auto number = whole_number_in(text);
    if (!number || *number < least || *number > most)
      return refusal(expectation(least, most), text);
    text = std::to_string(*number);  // CLI11 would take 010 for 8
    return std::string();
  };
  return option->transform(CLI::Validator(check, ""));
}

CLI::Option* take_number(CLI::Option* option, Sign sign) {
  const auto check = [=](const std::string& text) {
    const auto number = number_typed(text);
    const bool fits =
        number && (sign == Sign::any || *number >= 0) && (sign != Sign::positive || *number > 0);
    if (fits) return std::string();
    return refusal(sign == Sign::any            ? "a finite number"
                   : sign == Sign::not_negative ? "a finite number >= 0"
                                                : "a finite number > 0",
                   text);
  };
  return option->check(check);
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  std::string expected;
  for (std::size_t i = 0; i < words.size(); ++i)
    expected += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  const auto check = [=](const std::string& text) {
    const bool is_known = std::find(words.begin(), words.end(), text) != words.end();
    return is_known ? std::string() : refusal(expected, text) + did_you_mean(text, words);
  };
  return CLI::Validator(check, in_braces(words));
}

CLI::Validator offering(const std::vector<std::string>& words) {
  return CLI::Validator([](const std::string&) { return std::string(); }, in_braces(words));
}

std::string given_times(std::size_t count) {
  return ": given " + (count == 2 ? "twice" : std::to_string(count) + " times");
}

std::string said_by(const CLI::ParseError& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return text;
  constexpr std::string_view kMany = ": At Most 1 required but received ";
  if (const std::size_t many = text.find(kMany); many != std::string::npos)
    return text.substr(0, many) + given_times(std::stoul(text.substr(many + kMany.size())));
  constexpr std::string_view kMiddle = ": 1 required ", kEnd = " missing";
  const std::size_t middle = text.find(kMiddle);
  if (middle == std::string::npos || !text.ends_with(kEnd)) return text;
  std::string type = text.substr(middle + kMiddle.size());
  type.resize(type.size() - kEnd.size());
  return text.substr(0, middle) + ": expected " + type.substr(0, type.find(":{")) +
         ", found nothing";
}

}  // namespace attn
