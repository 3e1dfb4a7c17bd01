// attn svd: decomposes a matrix into U diag(s) Vt.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command svd_command();

}  // namespace attn
