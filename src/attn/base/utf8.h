// UTF-8: decoding, validation, grapheme clusters (Unicode Standard Annex #29) and their width on a
// terminal, from utf8proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Bytes of the well-formed UTF-8 sequence at `at` (Unicode 15, table 3-7: no overlong forms, no
/// surrogates, nothing above U+10FFFF), or 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// The code point at `at`, or the byte at `at` if it is not UTF-8.
std::uint32_t code_point(std::string_view text, std::size_t at);

/// Appends the character `code`, at most U+10FFFF.
void append_utf8(std::string& text, std::uint32_t code);

/// Offset of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// Bytes of the grapheme cluster at `at`, for example a letter with its combining marks. A byte
/// that is not UTF-8 is a cluster. A cluster longer than 128 bytes is split.
std::size_t grapheme_length(std::string_view text, std::size_t at);

std::vector<std::string_view> graphemes_of(std::string_view text);

/// Columns on a terminal: 2 for East Asian wide characters and emoji.
std::size_t columns_of(std::string_view text);

/// `text` with spaces after it, or before it, to fill `columns`.
std::string left_aligned(const std::string& text, std::size_t columns);
std::string right_aligned(const std::string& text, std::size_t columns);

/// A line for each row, with two spaces between columns. The columns from `first_right` to before
/// `end_right` are aligned to the right, the others to the left.
std::string aligned_rows(const std::vector<std::vector<std::string>>& rows, std::size_t first_right,
                         std::size_t end_right);

/// `text` if it fits `columns`, otherwise as many of its grapheme clusters as fit, followed by "…".
std::string cut_to_columns(std::string_view text, std::size_t columns);

/// Whether the zero-width joiner at `at` is followed by an emoji of the same grapheme cluster,
/// which ends at `end`. (By rule GB11 of Annex #29, the character before it is then an emoji, too.)
bool joins_emoji(std::string_view text, std::size_t at, std::size_t end);

/// Whether the character `code` has no glyph of its own but affects the text around it:
/// controls (C0 and C1), format characters such as direction marks and zero-width joiners, line and
/// paragraph separators.
bool is_invisible(char32_t code);

}  // namespace attn
