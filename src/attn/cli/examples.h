// attn examples: the worked examples that ship with the program.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command examples_command();

}  // namespace attn
