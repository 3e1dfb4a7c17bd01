// attn batch: computes many jobs, given as files or as lines of JSON, on several threads.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command batch_command();

}  // namespace attn
