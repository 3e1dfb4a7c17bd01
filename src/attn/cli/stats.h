// attn stats: statistics of attention heads from stored weights. attn rollout: attention rollout.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command stats_command();
Command rollout_command();

}  // namespace attn
