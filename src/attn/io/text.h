// What every text format asks of its bytes before it looks at them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attn/base/error.h"

namespace attn {

/// `text` without a UTF-8 byte order mark.
std::string_view without_mark(std::string_view text);

/// The same. Errors (data): nothing but white space, UTF-16, a NUL byte, bytes that are not UTF-8;
/// the last two give the byte's offset, counted from 0.
std::string_view checked_text(std::string_view text, const std::string& name);

/// A problem with the byte at `offset`. Its column counts characters.
Problem problem_at(std::string_view text, std::size_t offset, std::string message);

/// "1 cell", "2 cells".
std::string counted(std::size_t count, const std::string& noun);

}  // namespace attn
