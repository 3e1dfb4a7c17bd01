// Numbers as messages show them.
#pragma once

#include <string>

#include "attn/random/int128.h"

namespace attn {

std::string decimal(int128 value);
std::string decimal(double value);  ///< the fewest digits that read back as the same value

}  // namespace attn
