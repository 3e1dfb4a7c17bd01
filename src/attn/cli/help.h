// Help texts: an example first, one column of flags, text wrapped to 80 columns. Help topics come
// from docs/topics.txt, which is embedded; they are also section 7 of the manual.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/cli/command.h"

namespace attn {

struct Topic {
  std::string name, what;
  std::string text;  ///< lines of at most 76 columns, then "Example:" and command lines
};

const std::vector<Topic>& topics();
const Topic* find_topic(const std::string& name);  ///< nullptr if there is none
std::vector<std::string> topic_names();

/// `name` is the command as typed: "attn run".
std::string help_text(const Command& command, const std::string& name);

/// Without the options that are not common, if the whole text would be long.
std::string short_help_text(const Command& command, const std::string& name);

/// "-o, --output PATH", with padding if there is no short name.
std::string flags_of(const Option& option);

/// "  NAME     WHAT" in lines of at most 80 columns. WHAT starts at this column, on the next line
/// if NAME is too long.
std::string help_entry(const std::string& name, const std::string& what, std::size_t column);

/// A positional argument in a synopsis: "FILE", "[JOB...]".
std::string synopsis_of(const Option& argument);

/// The groups of options that help lists, in the order of their first options. Positional arguments
/// come first, as "Arguments".
struct OptionGroup {
  std::string name;
  std::vector<const Option*> options;
};
std::vector<OptionGroup> option_groups(const Command& command);

}  // namespace attn
