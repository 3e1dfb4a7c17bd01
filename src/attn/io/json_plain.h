// JSON without anything unusual about it, read fast.
#pragma once

#include <optional>
#include <string_view>

#include "attn/io/json.h"

namespace attn {

/// What parse_json() would give for `text`, which is UTF-8; nothing where it would give an error,
/// and for what is legal but rare (\uXXXX, numbers that underflow), which is left to it.
std::optional<Json> parse_plain_json(std::string_view text);

}  // namespace attn
