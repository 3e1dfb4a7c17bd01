// From the words of a command line to the options of a command.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "attn/cli/command.h"

namespace attn {

struct ParsedCommand {
  const Command* command = nullptr;  ///< the one that was given, or its subcommand
  std::string name;                  ///< "attn examples run"
  bool help = false;                 ///< -h was given: nothing else was checked
  std::set<const Option*> given;     ///< a switch only if it is on
};

/// Stores the options' values. `name` is the command's as typed, "attn run"; the words are those
/// behind it. Errors: usage.
ParsedCommand parse(const Command& command, const std::string& name,
                    const std::vector<std::string>& words);

/// Errors: usage, where an option lacks its companion or excludes another one.
void check_requirements(const Command& command, const ParsedCommand& parsed);

/// "; --causal takes its value as --causal=false" if `words` has a word that is no file, directly
/// behind a flag whose optional value it may be; otherwise "".
std::string hint_detached_value(const Command& command, const std::vector<std::string>& words);

}  // namespace attn
