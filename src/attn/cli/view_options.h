// Options of the commands that draw heat maps.
#pragma once

#include <string>
#include <vector>

#include "attn/cli/option.h"
#include "attn/cli/rendering.h"

namespace attn {

/// --view, --view=FILE or, for a FILE with a suffix of a picture, --view FILE.
Option view_option(std::string& target, const std::string& help);

/// --color and --width, of heat maps on the terminal.
std::vector<Option> terminal_options(RenderStyle& style);

}  // namespace attn
