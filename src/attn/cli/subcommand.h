// The commands of the program, in one table: dispatch, overview, man pages and completions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attn/cli/command.h"

namespace attn {

struct Subcommand {
  const char* name;
  const char* what;
  Action (*add)(CLI::App&);
};

std::span<const Subcommand> subcommands();
const Subcommand* find_subcommand(const std::string& name);  ///< nullptr when there is none
std::vector<std::string> subcommand_names();
std::vector<std::string> help_names();  ///< of commands, then of topics

/// A command with all its options declared, and what it does once they are parsed.
struct DeclaredCommand {
  std::unique_ptr<CLI::App> app;
  Action action;
  bool quiet = false;  ///< -q
  DeclaredCommand();
  ~DeclaredCommand();
};
std::unique_ptr<DeclaredCommand> declare(const Subcommand& subcommand);

/// What `attn --help` prints.
std::string overview();

/// An option or positional argument as man pages and completions need it.
struct OptionFacts {
  std::vector<std::string> names;  ///< "-o", "--output"; of a positional its one name
  bool positional = false;
  std::string synopsis;  ///< of a positional: "FILE", "[JOB...]"
  bool takes_value = false;
  std::string placeholder;         ///< "FILE"
  std::vector<std::string> words;  ///< all that may be given, where these are known
  std::string group, what;
};
std::vector<OptionFacts> facts_of(const CLI::App& app);

}  // namespace attn
