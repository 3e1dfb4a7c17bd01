// The options --max-memory and --max-expand.
#pragma once

#include <cstddef>
#include <string>

#include "attn/cli/command.h"
#include "attn/io/read_limits.h"

namespace attn {

struct LimitArgs {
  std::string max_memory, max_expand;
};

void add_limit_options(Command& command, LimitArgs& args);

/// The limits of commands that compute; `memory` is --max-memory, for the whole process. Errors:
/// usage.
ReadLimits limits_of(const LimitArgs& args);

/// The limits of commands that only read or convert. Without --max-memory, mapped inputs are not
/// limited, as they are not all in memory. Errors: usage.
ReadLimits reading_limits(const LimitArgs& args, FileAccess access);

}  // namespace attn
