// attn run: computes one job.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command run_command();

}  // namespace attn
