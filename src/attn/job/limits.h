// Memory limits: sizes as text, and the default.
#pragma once

#include <cstddef>
#include <string>

#include "attn/io/read_limits.h"

namespace attn {

/// "2G", "512M", "1.5GiB", "1000000": K, M, G and T are powers of 1024. Errors: usage, naming
/// `flag`.
std::size_t parse_size(const std::string& text, const std::string& flag);

/// "64 bytes", "1.5 MiB"
std::string size_text(std::size_t bytes);

/// 90% of the memory that this process may use.
std::size_t default_memory();

}  // namespace attn
