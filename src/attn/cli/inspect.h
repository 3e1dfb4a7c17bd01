// attn inspect: lists the tensors in files.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command inspect_command();

}  // namespace attn
