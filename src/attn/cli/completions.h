// attn completions: prints scripts for completion in shells.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command completions_command();

}  // namespace attn
