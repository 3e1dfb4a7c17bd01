#pragma once

namespace attn {

/// The program's version, from CMakeLists.txt.
inline constexpr char kVersion[] = ATTN_VERSION;

}  // namespace attn
