// Error messages for invalid JSON.
#pragma once

#include <cstddef>
#include <string_view>

#include "attn/base/error.h"

namespace attn {

/// The state of the reader at an error.
enum class JsonPlace {
  start,         ///< nothing read yet
  end,           ///< the whole value has been read
  array_start,   ///< after '['
  array_value,   ///< after a value of an array
  object_start,  ///< after '{'
  object_key,    ///< after a key
  object_value,  ///< after a value of an object
};

/// A syntax error: the text before `good` is valid, and the reader stopped before `read`.
struct JsonFault {
  std::string_view text;
  JsonPlace place;
  std::size_t good, read;
};

/// "line 3, column 7: expected a value, found ','"
Problem explain(const JsonFault& fault);

/// For a number at `at` that fits neither a double nor a 64-bit integer.
Problem explain_overflow(std::string_view text, std::size_t at);

}  // namespace attn
