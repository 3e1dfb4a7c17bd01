// A fast reader for JSON without rare features.
#pragma once

#include <optional>
#include <string_view>

#include "attn/io/json_write.h"
#include "attn/io/read_budget.h"

namespace attn {

/// The size of the string, as it is written, whose contents `text` begins with.
std::size_t size_in_quotes(std::string_view text);

/// The value that parse_json() returns for `text`, which is valid UTF-8. nullopt for text that
/// parse_json() would reject, and for valid but rare features (\uXXXX, numbers that underflow).
std::optional<Json> parse_plain_json(std::string_view text, MemoryCharge& charge);

}  // namespace attn
