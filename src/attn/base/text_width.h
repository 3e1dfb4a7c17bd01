// How wide text stands on a terminal, and how it is cut to a width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// The characters of well-formed UTF-8, each with the combining marks that follow it.
std::vector<std::string_view> characters_of(std::string_view text);

/// Terminal columns: 2 for East Asian wide characters and emoji, 0 for combining marks, 1 for the
/// rest (after Unicode's East_Asian_Width).
std::size_t columns_of(std::string_view text);

/// `text` in at most `columns`, its end replaced by "…" where it is longer.
std::string cut(std::string_view text, std::size_t columns);

}  // namespace attn
