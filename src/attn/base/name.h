// Comparison and hashes of names of tensors, keys and outputs.
#pragma once

#include <cstddef>
#include <string_view>

namespace attn {

/// a == b. Compares the last character first, because similar names differ there: W_Q, W_K.
constexpr bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || a.back() == b.back()) && a == b;
}

/// Hashes a name for a table of some hundred names; faster than std::hash for short strings.
struct NameHash {
  constexpr std::size_t operator()(std::string_view name) const {
    if (name.empty()) return 0;
    const auto code = [](char c) {
      return static_cast<std::size_t>(static_cast<unsigned char>(c));
    };
    return name.size() + 31 * code(name.back()) + 1009 * code(name[name.size() / 2]) +
           8017 * code(name.front());
  }
};

}  // namespace attn
