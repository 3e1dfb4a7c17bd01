// Decoding and validation of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn {

/// Bytes of the well-formed UTF-8 sequence at `at` (Unicode 15, table 3-7: no overlong forms, no
/// surrogates, nothing above U+10FFFF), or 0 where there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// The code point at `at`, or the byte there where it is not UTF-8.
std::uint32_t code_point(std::string_view text, std::size_t at);

/// Appends the character `code`, at most U+10FFFF.
void append_utf8(std::string& text, std::uint32_t code);

/// Offset of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace attn
