// attn conventions: prints a table of the conventions of libraries.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command conventions_command();

}  // namespace attn
