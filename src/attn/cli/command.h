// A command as data: its help texts, its options and its action.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "attn/cli/option.h"

namespace attn {

/// Returns the exit code. Errors are thrown (base/error.h).
using Action = std::function<int()>;

/// Each of `flags` requires a companion: "--force requires --out-dir".
struct Requirement {
  std::vector<std::string> flags;
  std::string companion;              ///< an option, or a description if `is_met` is given
  std::function<bool()> is_met = {};  ///< by default: whether the option `companion` was given
};

/// Two options that exclude each other.
struct Conflict {
  std::string first, second;
  std::string reason = {};  ///< why the two cannot be combined; "" if it is obvious
};

/// An option that replaces the command's usual action, so that only some others have an effect.
struct SoleOption {
  std::string name;
  std::vector<std::string> companions;  ///< options that can be combined with it
};

/// A hint for a flag that other programs have: "--force overwrites existing files".
struct FlagHint {
  std::vector<std::string> flags;
  std::string hint;
};

struct Command {
  std::string name, summary;  ///< of a subcommand; commands have theirs in commands.cpp
  std::string description;    ///< paragraphs; help wraps them
  std::string quiet_help = "suppress notes and warnings on stderr";  ///< of -q
  std::string example;                                               ///< command lines
  std::vector<Option> options;  ///< positional arguments in their order
  std::vector<Requirement> requirements;
  std::vector<Conflict> conflicts;
  std::vector<SoleOption> sole_options;
  std::vector<FlagHint> hints;       ///< for unknown flags
  std::string extra_hint;            ///< for arguments that the command does not take
  std::vector<Command> subcommands;  ///< they accept the options of their command, too
  std::string notes;                 ///< preformatted; help prints them last
  Action action;
  /// Reports an error of the action on stderr and returns the exit code; by default
  /// report_exception().
  std::function<int(const std::exception_ptr&)> report = {};

  void add(Option option);
  void add(std::vector<Option> more);
  template <std::size_t N>
  void add(Option (&&more)[N]) {
    add(moved(std::move(more)));
  }
  const Option* find(const std::string& option_name) const;  ///< nullptr if there is none
};

}  // namespace attn
