// attn man: prints the manual pages, in roff format.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command man_command();

}  // namespace attn
