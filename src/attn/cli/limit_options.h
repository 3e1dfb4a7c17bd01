// --max-memory, for commands that compute jobs, and --max-expand, for all that read files.
#pragma once

#include <cstddef>
#include <string>

#include "attn/cli/command.h"
#include "attn/io/limits.h"

namespace attn {

struct LimitArgs {
  std::string max_memory, max_expand;
};

void add_limit_options(Command& command, LimitArgs& args);
void add_expand_option(Command& command, LimitArgs& args);

/// Limits for a command that computes. `memory` is that of the whole process. Errors: usage.
ReadLimits limits_of(const LimitArgs& args);

/// Limits for a command that only reads: the size of inputs is not limited. Errors: usage.
ReadLimits reading_limits(const LimitArgs& args, FileAccess access);

}  // namespace attn
