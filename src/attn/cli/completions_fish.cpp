// The script of 'attn completions fish'.
#include "attn/base/text.h"
#include "attn/cli/completions.h"

namespace attn {
namespace {

constexpr char kFishHeader[] =
    R"(# Completions of attn for fish: install as attn.fish in vendor_completions.d.

# Prints each word after those of the list at the cursor.
function __attn_in_list
  set -l before (commandline -ct | string replace -r '^--[^=]*=' '' | string match -r '.*,')
  for word in $argv
    echo "$before$word"
  end
end

# Prints those flags of a command whose value is the next word.
function __attn_valued
  switch "$argv"
)";

constexpr char kFishPlace[] = R"(  end
end

# Prints the command before the cursor with the number of its arguments: "examples copy:1", or "run:" at a flag.
function __attn_place
  set -l commands )";

constexpr char kFishFooter[] = R"(
  set -l command
  set -l valued
  set -l arguments 0
  set -l is_value 0
  set -l words (commandline -opc)
  set -e words[1]
  for word in $words
    if test $is_value = 1
      set is_value 0
    else if contains -- $word $valued
      set is_value 1
    else if contains -- (string join -- ' ' $command $word) $commands
      set command $command $word
      set valued (__attn_valued $command)
    else if not string match -qr '^-.' -- $word
      set arguments (math $arguments + 1)
    end
  end
  string match -qr '^-.' -- (commandline -ct); and set arguments
  echo "$command:$arguments"
end

function __attn_at
  string match -qr "^$argv\$" (__attn_place)
end

complete -c attn -f
)";

std::string fish_valued(const CompletedCommand& command) {
  const auto takes_value = [](const Option& flag) { return flag.takes_value(); };
  const std::vector<std::string> flags = command.flags_with(takes_value);
  if (flags.empty()) return "";
  return "    case " + shell_quoted(command.path) + "\n      string split -- ' ' " +
         shell_quoted(join(flags, " ")) + "\n";
}

/// Of entries that apply where __attn_place prints the command and this; a regular expression.
std::string fish_entry(const CompletedCommand& command, const std::string& place) {
  return "complete -c attn -n '__attn_at \"" + command.path + ":" + place + "\"'";
}

std::string fish_values(const Option& option) {
  const std::string words = join(offered_words(option), " ");
  std::string text = takes_file(option) ? " -F" : " -f";
  if (!option.listed_by.empty())
    text += " -a " + shell_quoted("(" + command_that_lists(option, "attn") + ")");
  else if (option.takes_list() && !words.empty())
    text += " -a " + shell_quoted("(__attn_in_list " + words + ")");
  else if (!words.empty())
    text += " -a " + shell_quoted(words);
  return text;
}

std::string fish_flag(const Option& flag) {
  std::string text;
  for (const std::string& name : flag.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return text + (flag.takes_value() ? " -r" : "") + fish_values(flag) + " -d " +
         shell_quoted(flag.texts().help);
}

std::string fish_command(const CompletedCommand& command) {
  std::string text;
  for (const auto& [name, summary] : command.subcommands)
    text += fish_entry(command, "0") + " -a " + name + " -d " + shell_quoted(summary) + "\n";
  for (const Option& argument : command.arguments)
    text += fish_entry(command, command.place_of(argument, 0, ".+")) + fish_values(argument) + "\n";
  for (const Option& flag : command.flags)
    text += fish_entry(command, ".*") + fish_flag(flag) + "\n";
  return text;
}

}  // namespace

std::string fish_completions() {
  const std::vector<CompletedCommand> commands = completed_commands();
  const auto path = [](const CompletedCommand& command) { return shell_quoted(command.path); };
  return kFishHeader + join(commands, "", fish_valued) + kFishPlace + join(commands, " ", path) +
         kFishFooter + join(commands, "", fish_command);
}

}  // namespace attn
