// attn completions: what a shell offers at the Tab key.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command completions_command();

}  // namespace attn
