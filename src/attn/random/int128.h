// 128-bit integers, a GCC and Clang extension: bounds of every dtype, and PCG64's state.
#pragma once

#include <string>

namespace attn {

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

std::string to_string(int128 value);  ///< decimal

}  // namespace attn
