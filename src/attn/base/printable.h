// Text from files and jobs, made safe to show.
#pragma once

#include <string>

#include "attn/base/printable.h"

namespace attn {

/// `text` with control characters, invisible characters and bytes that are not UTF-8 written as
/// \xNN, so that a name from a file can neither move the cursor nor forge a line. Cut after 200
/// characters.
std::string printable(const std::string& text);

/// The same for a whole message, cut after 4,000 characters.
std::string printable_message(const std::string& text);

}  // namespace attn
