// Commands without a header of their own: mask_command() is in mask.cpp.
#pragma once

#include "attn/cli/command.h"

namespace attn {

Command completions_command();
Command conventions_command();
Command convert_command();
Command examples_command();
Command inspect_command();
Command man_command();
Command mask_command();
Command merge_command();
Command model_command();
Command random_command();
Command rollout_command();
Command schema_command();
Command sensitivity_command();
Command stats_command();
Command svd_command();
Command view_command();

}  // namespace attn
