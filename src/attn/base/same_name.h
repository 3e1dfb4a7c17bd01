// Fast comparison of the names of tensors, keys and outputs, which dominates small jobs.
#pragma once

#include <string_view>

namespace attn {

/// a == b. Compares the last character first, because names differ there: W_Q, W_K.
constexpr bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || a.back() == b.back()) && a == b;
}

}  // namespace attn
