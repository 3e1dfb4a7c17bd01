// Names of files, which are any bytes, as text, which is UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace attn {

/// The name itself, save that a byte which is not UTF-8 is \xNN, and a backslash before an x is
/// \x5c: no two names have one text. With it names can stand in JSON.
std::string text_of_name(std::string_view name);

/// The name that has this text.
std::string name_of_text(std::string_view text);

}  // namespace attn
