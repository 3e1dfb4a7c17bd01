// The version of the program.
#pragma once

namespace attn {

/// From CMakeLists.txt.
inline constexpr char kVersion[] = ATTN_VERSION;

}  // namespace attn
