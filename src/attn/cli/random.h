// attn random: generates arrays from NumPy's random streams.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command random_command();

}  // namespace attn
