// The only source file that includes CLI11, which only splits the words into options and values.
// This program interprets the values and writes all messages.
#include "attn/cli/parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

using Arguments = std::vector<std::string>;

CLI::Option* declare(const Option& option, CLI::App& app) {
  if (std::holds_alternative<SwitchValue>(option.value))
    return app.add_flag(join(option.names, ","));
  if (const auto* optional = std::get_if<OptionalValue>(&option.value))
    return app.add_flag(join(option.names, "{" + optional->standalone + "},") + "{" +
                        optional->standalone + "}");
  CLI::Option* const declared = app.add_option(join(option.names, ","));
  declared->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // store_values() counts them
  if (option.is_positional() && option.is_repeatable()) declared->expected(-1);
  return declared;
}

/// What the words of a command line may name: "--seed" of "--seed=1", and "f" and "q" of "-fq".
struct GivenNames {
  std::vector<std::string_view> flags = {};
  std::string letters = {};

  explicit GivenNames(const Arguments& words) {
    for (const std::string_view word : words)
      if (word.starts_with("--"))
        flags.push_back(word.substr(0, word.find('=')));
      else if (word.starts_with('-'))
        letters += word;
  }

  bool may_include(const Option& option) const {
    return option.is_positional() ||
           std::any_of(option.names.begin(), option.names.end(), [&](std::string_view name) {
             return name.starts_with("--")
                        ? std::find(flags.begin(), flags.end(), name) != flags.end()
                        : letters.find(name.back()) != letters.npos;
           });
  }
};

/// A command with its parser, and those of its subcommands. Only options that the words may name
/// are declared: CLI11 compares each option with all others, which took half of the time of a small
/// run.
struct CommandParser {
  const Command& command;
  CLI::App& app;
  std::vector<std::pair<const Option*, CLI::Option*>> options = {};
  std::vector<CommandParser> subcommands = {};

  CommandParser(const Command& of, CLI::App& in, const GivenNames& given) : command(of), app(in) {
    app.set_help_flag();  // -h is an ordinary option here
    app.allow_extras();
    for (const Option& option : command.options)
      if (given.may_include(option)) options.emplace_back(&option, declare(option, app));
    if (!command.subcommands.empty()) app.require_subcommand(0, 1);
    for (const Command& subcommand : command.subcommands)
      subcommands.emplace_back(subcommand, *app.add_subcommand(subcommand.name)->fallthrough(),
                               given);
  }

  const CommandParser* given_subcommand() const {
    for (const CommandParser& subcommand : subcommands)
      if (subcommand.app.parsed()) return &subcommand;
    return nullptr;
  }
};

/// CLI11 detects a missing value only at the end of the words.
[[noreturn]] void refuse_missing_value(const Command& command, const Arguments& words) {
  std::string last = words.back();
  if (last.starts_with("--"))
    last = last.substr(0, last.find('='));
  else
    last = {'-', last.back()};
  const Option* option = command.find(last);
  for (const Command& subcommand : command.subcommands)
    if (option == nullptr) option = subcommand.find(last);
  if (option == nullptr) fail_usage(printable(last) + ": expected a value, found nothing");
  fail_usage(option->name() + ": expected " + option->placeholder + ", found nothing");
}

std::string suggest_flag(const std::string& flag, const std::set<const Command*>& commands) {
  Arguments flags;
  const std::string positive = flag.starts_with("--no-") ? "--" + flag.substr(5) : "";
  for (const Command* command : commands) {
    const Option* const negated = positive.empty() ? nullptr : command->find(positive);
    const auto* optional = negated ? std::get_if<OptionalValue>(&negated->value) : nullptr;
    if ((optional != nullptr && optional->accepts("false")) ||
        (negated != nullptr && std::holds_alternative<SwitchValue>(negated->value)))
      return "; write " + positive + "=false";
    for (const FlagHint& hint : command->hints)
      if (std::find(hint.flags.begin(), hint.flags.end(), flag) != hint.flags.end())
        return "; " + hint.hint;
    for (const Option& option : command->options) {
      std::vector<std::string> spellings;  // --w-q and --wq are one
      for (const std::string& name : option.names) {
        std::string letters = name;
        std::erase(letters, '-');
        const bool is_new =
            std::find(spellings.begin(), spellings.end(), letters) == spellings.end();
        if (!name.starts_with("--") || !is_new) continue;
        spellings.push_back(letters);
        flags.push_back(name);
      }
    }
  }
  return did_you_mean(flag, flags, NameKind::input);
}

/// "write --shape 2,3" for the words --shape 2 3, where the option takes numbers or names with
/// commas.
std::string hint_list(const Command& command, const Arguments& extras, const Arguments& words) {
  const auto belongs = [](const Option& option, const std::string& word) {
    const Arguments names = option.texts().suggestions;
    return (!word.empty() && word.find_first_not_of("0123456789,") == std::string::npos) ||
           std::find(names.begin(), names.end(), word) != names.end();
  };
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const Option* const option = command.find(words[i - 1]);
    if (option == nullptr || words[i].starts_with("--") || !option->takes_list()) continue;
    std::string list = words[i];
    bool has_extra = false;
    for (std::size_t k = i + 1; k < words.size() && belongs(*option, words[k]); ++k) {
      list += "," + words[k];
      has_extra |= words[k] == extras[0];
    }
    if (has_extra) return "write " + words[i - 1] + " " + printable(list);
  }
  return "";
}

/// Reports words that are neither options nor expected positional arguments, unknown flags first.
/// `given` is the command or its subcommand.
void refuse_extras(Arguments extras, const Command& command, const Command& given,
                   const Arguments& words) {
  std::erase(extras, "--");
  if (extras.empty()) return;
  const auto end_of_flags = std::find(words.begin(), words.end(), "--");
  for (const std::string& word : extras) {
    const std::string flag = word.substr(0, word.find('='));
    const bool is_flag = flag.size() > 1 && flag[0] == '-' &&
                         std::find(end_of_flags, words.end(), word) == words.end();
    if (is_flag)
      fail_usage("unknown flag '" + printable(flag) + "'" + suggest_flag(flag, {&command, &given}));
  }
  Arguments subcommands;
  for (const Command& subcommand : command.subcommands) subcommands.push_back(subcommand.name);
  std::string hint = hint_detached_value(command, words);
  if (hint.empty()) hint = hint_list(command, extras, words);
  const std::string meant =
      hint.empty() ? did_you_mean(extras[0], subcommands, NameKind::other) : "";
  if (hint.empty()) hint = given.extra_hint;
  fail_usage("unexpected argument '" + printable(extras[0]) + "'" +
             (!meant.empty() || hint.empty() ? meant : "; " + hint));
}

void store_options(const CommandParser& parser, ParsedCommand& parsed) {
  for (const auto& [option, declared] : parser.options) {
    if (declared->count() == 0) continue;
    const Arguments values = declared->results();
    store_values(*option, values);
    if (!std::holds_alternative<SwitchValue>(option->value) || is_switched_on(*option, values))
      parsed.given.insert(option);
  }
}

/// An option of the command or of its subcommands.
const Option* find_with_subcommands(const Command& command, const std::string& name) {
  const Option* option = command.find(name);
  for (const Command& subcommand : command.subcommands)
    if (option == nullptr) option = subcommand.find(name);
  return option;
}

/// "--view", "x.svg" as "--view=x.svg", where the option recognises the next word as its value. Not
/// "-", which may be a job on standard input.
Arguments join_optional_values(const Command& command, Arguments words) {
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with('-')) continue;
    const Option* const option = find_with_subcommands(command, words[i]);
    const auto* const optional =
        option == nullptr ? nullptr : std::get_if<OptionalValue>(&option->value);
    if (optional == nullptr || !optional->may_be_next_word || words[i + 1].starts_with('-') ||
        !optional->accepts(words[i + 1]))
      continue;
    words[i] += "=" + words[i + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return words;
}

/// Refuses "--seed=", for which CLI11 would take the next word as the value.
void refuse_empty_values(const Command& command, const Arguments& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with('-')) continue;
    const std::size_t end = words[i].find('=');
    const Option* const option = find_with_subcommands(command, words[i].substr(0, end));
    if (option == nullptr) continue;
    if (end + 1 == words[i].size()) refuse_empty_value(*option);
    if (end == std::string::npos && option->takes_value()) ++i;  // the next word is the value
  }
}

void parse_words(const Command& command, const Arguments& words, ParsedCommand& parsed) {
  refuse_empty_values(command, words);
  CLI::App app;
  const CommandParser parser(command, app, GivenNames(words));
  try {
    app.parse(Arguments(words.rbegin(), words.rend()));
  } catch (const CLI::ArgumentMismatch&) {
    refuse_missing_value(command, words);
  }
  const CommandParser* const subcommand = parser.given_subcommand();
  store_options(parser, parsed);
  if (subcommand != nullptr) {
    store_options(*subcommand, parsed);
    parsed.command = &subcommand->command;
    parsed.name += " " + subcommand->command.name;
  }
  const auto is_help = [](const Option* option) { return option->has_name("--help"); };
  if (std::any_of(parsed.given.begin(), parsed.given.end(), is_help)) {
    const bool is_short = std::find(words.begin(), words.end(), "--help") == words.end();
    parsed.help = is_short ? HelpLength::common : HelpLength::all;
    return;
  }
  refuse_extras(app.remaining(true), command, *parsed.command, words);
  for (const Option& option : parsed.command->options)
    if (option.required && !parsed.given.contains(&option))
      fail_usage(option.name() + " is required");
}

}  // namespace

ParsedCommand parse(const Command& command, const std::string& name, const Arguments& words) {
  ParsedCommand parsed{&command, name, HelpLength::none, {}};
  try {
    parse_words(command, join_optional_values(command, words), parsed);
  } catch (const Error& error) {
    throw Error(error.kind(), error.lines()[0] + "; see '" + parsed.name + " --help'");
  }
  return parsed;
}

void check_requirements(const Command& command, const ParsedCommand& parsed) {
  const auto is_given = [&](const std::string& name) {
    return std::any_of(parsed.given.begin(), parsed.given.end(),
                       [&](const Option* option) { return option->has_name(name); });
  };
  for (const SoleOption& sole : command.sole_options) {
    if (!is_given(sole.name)) continue;
    for (const Option* const option : parsed.given) {
      const auto is_allowed = [&](const std::string& name) { return option->has_name(name); };
      if (!is_allowed(sole.name) &&
          std::none_of(sole.companions.begin(), sole.companions.end(), is_allowed))
        fail_usage(sole.name + " cannot be combined with " + option->name());
    }
  }
  for (const Requirement& requirement : command.requirements) {
    const auto flag = std::find_if(requirement.flags.begin(), requirement.flags.end(), is_given);
    if (flag == requirement.flags.end()) continue;
    if (requirement.is_met ? !requirement.is_met() : !is_given(requirement.companion))
      fail_usage(*flag + " requires " + requirement.companion);
  }
  for (const Conflict& conflict : command.conflicts)
    if (is_given(conflict.first) && is_given(conflict.second))
      fail_usage(conflict.reason.empty()
                     ? conflict.first + " and " + conflict.second + " are mutually exclusive"
                     : conflict.first + " cannot be combined with " + conflict.second + ": " +
                           conflict.reason);
}

std::string hint_detached_value(const Command& command, const Arguments& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const Option* const option = command.find(words[i - 1]);
    const auto* const optional =
        option == nullptr ? nullptr : std::get_if<OptionalValue>(&option->value);
    std::error_code ignored;
    if (optional != nullptr && optional->accepts(words[i]) &&
        !std::filesystem::exists(words[i], ignored))
      return words[i - 1] + " takes its value as " + words[i - 1] + "=" + printable(words[i]);
  }
  return "";
}

}  // namespace attn
