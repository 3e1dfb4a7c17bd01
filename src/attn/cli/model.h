// attn model: shows how attn reads the layers of a model (model/model_job.h).
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command model_command();

}  // namespace attn
