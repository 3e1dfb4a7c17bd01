// attn convert: converts tensor files, or prints them as text.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command convert_command();

}  // namespace attn
