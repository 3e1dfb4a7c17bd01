// Text and bytes inside HTML, SVG and scripts, where nothing of them may act.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attn {

/// `text` as content or attribute of HTML and XML: & < > " ' are written as references; what XML
/// cannot hold (controls, bytes that are not UTF-8) becomes U+FFFD.
std::string markup(std::string_view text);

/// `text` as a JSON string that may stand in a script element: < > & are escaped, too, so that no
/// "</script>" ends it, and so are U+2028 and U+2029.
std::string script_string(std::string_view text);

/// Five letters for four bytes (base64 takes five and a third), which may stand in a script
/// element: a little-endian number in digits of base 85, the most significant first. Zeros fill the
/// last four.
void append_base85(std::string& out, std::span<const std::byte> bytes);

/// RFC 4648, with padding.
void append_base64(std::string& out, std::span<const std::byte> bytes);

}  // namespace attn
