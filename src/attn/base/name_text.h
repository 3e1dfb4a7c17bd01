// File names, which can contain any bytes, as UTF-8 text for JSON.
#pragma once

#include <string>
#include <string_view>

namespace attn {

/// The name, with bytes that are not UTF-8 as \xNN and a backslash before an x as \x5c. Different
/// names have different texts.
std::string text_of_name(std::string_view name);

/// The inverse of text_of_name().
std::string name_of_text(std::string_view text);

}  // namespace attn
