// 128-bit integers, a GCC and Clang extension: for bounds of every dtype and the state of PCG64.
#pragma once

namespace attn {

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

}  // namespace attn
