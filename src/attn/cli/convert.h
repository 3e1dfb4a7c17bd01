// attn convert: one tensor file into another, or into text.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command convert_command();

}  // namespace attn
