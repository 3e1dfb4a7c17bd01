// Comparing names of tensors, keys and outputs: what a small job does most of.
#pragma once

#include <string_view>

namespace attn {

/// a == b. Names differ in their last letters, if not in length: W_Q, W_K.
constexpr bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || a.back() == b.back()) && a == b;
}

}  // namespace attn
