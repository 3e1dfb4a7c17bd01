// attn compare: how far the tensors of one file are from those of another, or of a job.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command compare_command();

}  // namespace attn
