// Bytes as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace attn {

/// Base 85, safe inside a script element: five characters for each four bytes, padded with zeros.
/// The bytes are a little-endian number, written with the most significant digit first.
void append_base85(std::string& out, std::span<const std::byte> bytes);
inline constexpr double kBase85Characters = 1.25;  ///< for each byte

/// RFC 4648, with padding.
void append_base64(std::string& out, std::span<const std::byte> bytes);

}  // namespace attn
