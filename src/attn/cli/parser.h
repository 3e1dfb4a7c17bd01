// Parses the words of a command line into the options of a command.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "attn/cli/command.h"

namespace attn {

enum class HelpLength { none, common, all };

struct ParsedCommand {
  const Command* command = nullptr;    ///< the command, or its subcommand if one was given
  std::string name;                    ///< "attn examples run"
  HelpLength help = HelpLength::none;  ///< if -h or --help was given, nothing else was checked
  std::set<const Option*> given;       ///< a switch only if it is on
};

/// Stores the options' values. `name` is the command as typed, "attn run"; `words` are those after
/// it. Errors: usage.
ParsedCommand parse(const Command& command, const std::string& name,
                    const std::vector<std::string>& words);

/// Errors: usage, if an option lacks its companion or excludes another one.
void check_requirements(const Command& command, const ParsedCommand& parsed);

/// "; --causal takes its value as --causal=false" if one of `words` directly follows a flag with an
/// optional value, may be meant as that value, and is not a file; otherwise "".
std::string hint_detached_value(const Command& command, const std::vector<std::string>& words);

}  // namespace attn
