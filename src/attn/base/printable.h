// Escapes text from files and jobs for terminals.
#pragma once

#include <string>

namespace attn {

/// `text` with control characters, invisible characters and bytes that are not UTF-8 written as
/// \xNN, so that a name from a file cannot move the cursor or forge a line. Cut after 200 bytes, at
/// the end of a grapheme cluster.
std::string printable(const std::string& text);

/// The same for a whole message, cut after 4,000 bytes.
std::string printable_message(const std::string& text);

}  // namespace attn
