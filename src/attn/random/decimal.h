// Numbers formatted for messages.
#pragma once

#include <string>

#include "attn/random/int128.h"

namespace attn {

std::string decimal(int128 value);
std::string decimal(double value);  ///< the shortest text that parses as the same value

}  // namespace attn
