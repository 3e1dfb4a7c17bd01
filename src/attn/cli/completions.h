// What shells complete on a command line of attn, and the scripts for each shell.
#pragma once

#include <string>
#include <vector>

#include "attn/cli/command.h"

namespace attn {

/// What can follow a command or a subcommand.
struct CompletedCommand {
  struct Word {
    std::string name, summary;
  };

  std::string path = {};               ///< "examples run"; "" is attn itself
  std::vector<Word> subcommands = {};  ///< of attn itself: the commands
  std::vector<Option> flags = {};      ///< of a subcommand: with those of its command
  std::vector<Option> arguments = {};  ///< positional, in their order

  /// The names of those flags for which `accepts` is true.
  std::vector<std::string> flags_with(bool (*accepts)(const Option& flag)) const;
  /// The number of an argument, counted from `first`, or `any` if it takes all further words. So
  /// does the last argument if a flag may have its value as the next word, which a shell counts,
  /// too.
  std::string place_of(const Option& argument, std::ptrdiff_t first, const std::string& any) const;
};

/// attn itself, then each command, followed by its subcommands.
std::vector<CompletedCommand> completed_commands();

std::vector<std::string> names_of(const std::vector<CompletedCommand::Word>& words);

/// Whether values of the option are names of files or folders.
bool takes_file(const Option& option);

/// Whether the option takes =true or =false.
bool is_boolean(const Option& option);

/// known_values(), or true and false.
std::vector<std::string> offered_words(const Option& option);

/// A shell command that prints the possible values of an option with `listed_by`.
std::string command_that_lists(const Option& option, const std::string& program);

/// Quotes `text` for a shell.
std::string shell_quoted(std::string text);

std::string bash_completions();
std::string zsh_completions();
std::string fish_completions();

}  // namespace attn
