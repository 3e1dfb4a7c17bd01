// attn conventions: what the libraries mean by attention, as a table.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command conventions_command();

}  // namespace attn
