// Checks that all text formats make before parsing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attn/base/error.h"

namespace attn {

/// `text` without a UTF-8 byte order mark.
std::string_view without_byte_order_mark(std::string_view text);

/// The same. Errors (data): only white space, UTF-16, a NUL byte, or invalid UTF-8. The last two
/// errors state the byte's offset from 0.
std::string_view checked_text(std::string_view text, const std::string& name);

/// A problem with the byte at `offset`. Its column counts characters.
Problem problem_at(std::string_view text, std::size_t offset, std::string message);

}  // namespace attn
