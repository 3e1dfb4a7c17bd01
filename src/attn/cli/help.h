// Help texts: an example first, one column of flags, text wrapped to 80 columns.
#pragma once

#include <string>

#include "attn/cli/command.h"

namespace attn {

/// `name` is the command as typed: "attn run".
std::string help_text(const Command& command, const std::string& name);

/// A positional argument in a synopsis: "FILE", "[JOB...]".
std::string synopsis_of(const Option& argument);

/// The groups of options that are listed, in the order in which they first appear; positional
/// arguments come first, as "Arguments".
struct OptionGroup {
  std::string name;
  std::vector<const Option*> options;
};
std::vector<OptionGroup> option_groups(const Command& command);

}  // namespace attn
