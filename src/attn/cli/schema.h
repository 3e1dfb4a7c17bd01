// attn schema: the JSON Schema of a job.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command schema_command();

}  // namespace attn
