#include "attn/cli/cli.h"

namespace attn {

int run_cli(int, char**) { return 70; }

}  // namespace attn
