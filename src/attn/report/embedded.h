// Files that the build puts into the program (cmake/embed.S.in), as they stand on disk.
#pragma once

#include <string_view>

namespace attn {

std::string_view embedded_font();  ///< DejaVu Sans, TrueType

}  // namespace attn
