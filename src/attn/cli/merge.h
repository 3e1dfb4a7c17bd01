// attn merge: attention over keys that were split over several runs.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command merge_command();

}  // namespace attn
