// attn inspect: what tensor files contain.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command inspect_command();

}  // namespace attn
