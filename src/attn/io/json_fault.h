// What is wrong with a JSON document, in words for whoever wrote it.
#pragma once

#include <cstddef>
#include <string_view>

#include "attn/base/error.h"

namespace attn {

/// Where in the grammar a reader stood when it met what it could not read.
enum class JsonPlace {
  start,         ///< nothing read yet
  end,           ///< the whole value has been read
  array_start,   ///< after '['
  array_value,   ///< after a value of an array
  object_start,  ///< after '{'
  object_key,    ///< after a key
  object_value,  ///< after a value of an object
};

/// A document that is not JSON. All before `good` was; the reader gave up before `read`.
struct JsonFault {
  std::string_view text;
  JsonPlace place;
  std::size_t good, read;
};

/// "line 3, column 7: expected a value, found ','"
Problem explain(const JsonFault& fault);

/// A number, starting at `at`, that neither a double nor a 64-bit integer can hold.
Problem explain_overflow(std::string_view text, std::size_t at);

}  // namespace attn
