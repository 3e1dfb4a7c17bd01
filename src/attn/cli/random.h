// attn random: arrays from the random streams of NumPy, by the names of its methods.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command random_command();

}  // namespace attn
