// --max-memory and --max-expand: both where jobs are computed, the second where files are read.
#pragma once

#include <cstddef>
#include <string>

#include "attn/cli/command.h"
#include "attn/io/limits.h"

namespace attn {

/// What was typed.
struct LimitArgs {
  std::string max_memory, max_expand;
};

void add_limit_options(Command& command, LimitArgs& args);
void add_expand_option(Command& command, LimitArgs& args);

/// What files and draws may take: `memory` is --max-memory, for the whole process. Errors: usage.
ReadLimits limits_of(const LimitArgs& args);

/// The same where nothing is computed: the size of what is read is not limited. Errors: usage.
ReadLimits reading_limits(const LimitArgs& args, FileAccess access);

}  // namespace attn
