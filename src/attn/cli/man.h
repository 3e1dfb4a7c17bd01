// attn man: the manual pages, in the macros of roff.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command man_command();

}  // namespace attn
