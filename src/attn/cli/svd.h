// attn svd: a matrix as U diag(s) Vt.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command svd_command();

}  // namespace attn
