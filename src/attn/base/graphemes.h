// Grapheme clusters (Unicode Standard Annex #29) and their width on a terminal, from utf8proc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Bytes of the grapheme cluster at `at`, for example a letter with its combining marks. A byte
/// that is not UTF-8 is a cluster by itself, and so is the rest of one longer than 128 bytes.
std::size_t grapheme_length(std::string_view text, std::size_t at);

std::vector<std::string_view> graphemes_of(std::string_view text);

/// Columns on a terminal: 2 for East Asian wide characters and emoji.
std::size_t columns_of(std::string_view text);

/// `text`, or as many of its grapheme clusters as fit `columns` with a "…" after them.
std::string cut_to_columns(std::string_view text, std::size_t columns);

/// Whether a terminal shows the character `code` not as a glyph, but by changing what surrounds it:
/// controls (C0 and C1), format characters such as direction marks and zero-width joiners, line and
/// paragraph separators.
bool is_invisible(char32_t code);

}  // namespace attn
