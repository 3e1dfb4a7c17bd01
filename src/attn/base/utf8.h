// The little that attn needs to know about UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn {

/// Bytes of the well-formed UTF-8 sequence that starts at `at` (Unicode 15, table 3-7: no overlong
/// forms, no surrogates, nothing above U+10FFFF), or 0 when what stands there is not one.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// The character there; of a byte that is not UTF-8, that byte.
std::uint32_t code_point(std::string_view text, std::size_t at);

/// Appends the character `code`, at most U+10FFFF.
void append_utf8(std::string& text, std::uint32_t code);

/// Where the first byte stands that is not UTF-8, or npos when all of it is.
std::size_t find_invalid_utf8(std::string_view text);

/// Whether the multi-byte character at `at` is one that changes what a terminal shows around it:
/// C1 controls, direction marks and overrides, line separators, zero-width characters.
bool is_invisible(std::string_view text, std::size_t at);

}  // namespace attn
