// attn view: a tensor of a result as a heat map, on the terminal or as a picture.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command view_command();

}  // namespace attn
