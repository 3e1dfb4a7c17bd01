// How help looks: an example first, one column of flags, text wrapped to 80 columns.
#pragma once

#include <memory>

namespace CLI {
class Formatter;
}

namespace attn {

std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace attn
