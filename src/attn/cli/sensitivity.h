// attn sensitivity: lists the mistakes of kernels that a test of a job would not notice.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command sensitivity_command();

}  // namespace attn
