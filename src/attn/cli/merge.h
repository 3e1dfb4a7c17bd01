// attn merge: combines attention over parts of the keys.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command merge_command();

}  // namespace attn
