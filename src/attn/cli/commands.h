// The commands of the program, in one table: dispatch, the overview, manual pages and completions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/executor.h"

namespace attn {

struct CommandEntry {
  const char* name;
  const char* summary;
  Command (*make)(Executor& executor);
};

std::span<const CommandEntry> commands();
const CommandEntry* find_command(const std::string& name);  ///< nullptr when there is none
std::vector<std::string> command_names();
std::vector<std::string> help_names();  ///< of commands, then of topics

/// The command with -h and -q, which all commands and subcommands accept.
Command make_command(const CommandEntry& entry, Executor& executor = local_executor());

/// The flags of attn without a command: --help and --version.
std::vector<Option> program_options();

/// What `attn --help` prints.
std::string overview();

}  // namespace attn
