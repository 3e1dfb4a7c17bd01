// attn mask: draws or writes which keys each query sees.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command mask_command();

}  // namespace attn
