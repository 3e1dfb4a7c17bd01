// Parses JSON. A fast reader (io/json_plain.h) takes what it can; nlohmann/json takes the rest and
// finds errors (docs/decisions/0013-two-json-readers.md).
#pragma once

#include <string>
#include <string_view>

#include "attn/io/json.h"
#include "attn/io/read_budget.h"

namespace attn {

/// `name` is used in errors: "NAME: line 3, column 7: expected a value, found ','". Errors: data.
Json parse_json(std::string_view text, const std::string& name);
/// Charges the memory of the value to `charge`.
Json parse_json(std::string_view text, const std::string& name, MemoryCharge& charge);

}  // namespace attn
