// attn completions: prints scripts for completion in shells.
#include "attn/cli/completions.h"

#include <memory>

#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/commands.h"
#include "attn/cli/terminal.h"

namespace attn {
namespace {

/// Adds the options that the command does not have already.
void add_options(const std::vector<Option>& options, CompletedCommand& command) {
  const std::vector<std::string> present = names_of(command.flags);
  for (const Option& option : options)
    if (option.is_positional())
      command.arguments.push_back(option);
    else if (std::find(present.begin(), present.end(), option.name()) == present.end())
      command.flags.push_back(option);
}

void add_command(const CommandEntry& entry, std::vector<CompletedCommand>& all) {
  const Command command = make_command(entry);
  CompletedCommand completed{.path = entry.name};
  add_options(command.options, completed);
  for (const Command& subcommand : command.subcommands)
    completed.subcommands.push_back({subcommand.name, subcommand.summary});
  all.push_back(std::move(completed));
  for (const Command& subcommand : command.subcommands) {
    CompletedCommand within{.path = std::string(entry.name) + " " + subcommand.name};
    add_options(subcommand.options, within);
    add_options(command.options, within);
    all.push_back(std::move(within));
  }
}

/// attn help [COMMAND], which has no table.
CompletedCommand completed_help() {
  const Store<std::string> ignore = [](const std::string&) {};
  CompletedCommand help{.path = "help"};
  help.arguments = {suggesting(text("COMMAND", ignore, "COMMAND", ""), help_names())};
  return help;
}

bool may_take_next_word(const Option& flag) {
  const auto* const optional = std::get_if<OptionalValue>(&flag.value);
  return optional != nullptr && optional->may_be_next_word;
}

}  // namespace

std::vector<std::string> CompletedCommand::flags_with(bool (*accepts)(const Option& flag)) const {
  std::vector<std::string> names;
  for (const Option& flag : flags)
    if (accepts(flag)) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::string CompletedCommand::place_of(const Option& argument, std::ptrdiff_t first,
                                       const std::string& any) const {
  const bool is_last = &argument == &arguments.back();
  if (argument.is_repeatable() || (is_last && !flags_with(may_take_next_word).empty())) return any;
  return std::to_string(first + (&argument - arguments.data()));
}

std::vector<CompletedCommand> completed_commands() {
  std::vector<CompletedCommand> all = {{.flags = program_options()}};
  for (const CommandEntry& entry : commands()) {
    all[0].subcommands.push_back({entry.name, entry.summary});
    add_command(entry, all);
  }
  all.push_back(completed_help());
  all[0].subcommands.push_back({all.back().path, "show help for a command or a topic"});
  return all;
}

std::vector<std::string> names_of(const std::vector<CompletedCommand::Word>& words) {
  return texts_of(words, &CompletedCommand::Word::name);
}

bool takes_file(const Option& option) {
  const std::string& value = option.placeholder;
  return option.may_be_file || value.find("FILE") != value.npos ||
         value.find("PATH") != value.npos || value == "DIR" || value == "FOLDER" ||
         value == "JOB" ||
         (option.is_positional() && option.listed_by.empty() && option.known_values().empty());
}

bool is_boolean(const Option& option) {
  const auto* const optional = std::get_if<OptionalValue>(&option.value);
  return optional != nullptr ? optional->accepts("true")
                             : std::holds_alternative<SwitchValue>(option.value);
}

std::vector<std::string> offered_words(const Option& option) {
  return is_boolean(option) ? std::vector<std::string>{"true", "false"} : option.known_values();
}

std::string command_that_lists(const Option& option, const std::string& program) {
  // They follow two spaces; headings do not.
  return program + " " + std::string(option.listed_by) +
         " 2>/dev/null | grep \"^  \" | cut -d\" \" -f3";
}

std::string shell_quoted(std::string text) {
  for (std::size_t i = 0; (i = text.find('\'', i)) != std::string::npos; i += 4)
    text.replace(i, 1, "'\\''");
  return "'" + text + "'";
}

Command completions_command() {
  const auto shell = std::make_shared<std::string>();
  Command command;
  command.description = "Prints shell completions for attn: commands, flags and their values.";
  command.example =
      "  attn completions bash > attn.bash\n"
      "  attn completions zsh > _attn";
  command.add(required(word("SHELL", *shell, {"bash", "zsh", "fish"}, "bash, zsh or fish")));
  command.action = [shell] {
    print_data(*shell == "bash"  ? bash_completions()
               : *shell == "zsh" ? zsh_completions()
                                 : fish_completions());
    return 0;
  };
  return command;
}

}  // namespace attn
