// attn model: prints what is understood of the layers of a model.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command model_command();

}  // namespace attn
