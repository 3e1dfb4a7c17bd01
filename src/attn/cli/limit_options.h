// --max-memory and --max-expand, for every subcommand that computes jobs.
#pragma once

#include <cstddef>
#include <string>

#include "attn/io/limits.h"

namespace CLI {
class App;
}

namespace attn {

/// What was typed.
struct LimitArgs {
  std::string max_memory, max_expand;
};

void add_limit_options(CLI::App& app, LimitArgs& args);

/// What files and draws may take: `memory` is --max-memory, for the whole process. Errors: usage.
ReadLimits limits_of(const LimitArgs& args);

}  // namespace attn
