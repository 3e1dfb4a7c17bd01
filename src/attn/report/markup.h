// Escapes text and bytes for HTML, SVG and scripts.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attn {

/// `text` as content or attribute value of HTML and XML: & < > " ' become references; what XML does
/// not allow (controls, U+FFFE, U+FFFF, bytes that are not UTF-8) becomes U+FFFD.
std::string markup(std::string_view text);

/// `text` as a JSON string inside a script element: < > & (so that "</script>" cannot end it),
/// U+2028 and U+2029 are escaped as well.
std::string script_string(std::string_view text);

/// Base 85, safe inside a script element: five characters for each four bytes, padded with zeros.
/// The bytes are a little-endian number, written with the most significant digit first.
void append_base85(std::string& out, std::span<const std::byte> bytes);

/// RFC 4648, with padding.
void append_base64(std::string& out, std::span<const std::byte> bytes);

}  // namespace attn
