// JSON (RFC 8259) as attn reads and writes it.
//
// Stricter than most readers: a duplicate key, invalid UTF-8, a number that overflows, NUL bytes,
// anything after the document and nesting beyond 64 levels are errors that say where. Integers
// stay integers. NaN and infinities, which JSON cannot hold, are the strings "NaN", "Infinity" and
// "-Infinity".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in the document's order

/// A row of plain numbers, kept compactly: what tensors in a document mostly are. All integers, or
/// all floats once one of them is.
using JsonIntegers = std::vector<std::int64_t>;
using JsonFloats = std::vector<double>;

/// One value. An array of numbers alone is JsonIntegers or JsonFloats; any other is a JsonArray.
struct Json {
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray,
               JsonObject, JsonIntegers, JsonFloats>
      value = nullptr;

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  const Json* find(const std::string& key) const;  ///< a member of an object, or nullptr
  bool is_array() const;
  /// "a string", "an object", "an integer", …: for messages
  std::string kind() const;
  /// The number as a double, if this is a number or one of the strings "NaN", "Infinity",
  /// "-Infinity"; otherwise nothing.
  bool as_number(double& number) const;
};

/// `name` stands in errors. Errors: data, with line and column.
Json parse_json(std::string_view text, const std::string& name);

/// Nested arrays of numbers (or booleans) as a tensor: int64 when every number is an integer,
/// float64 otherwise, bool when every cell is a boolean. A lone number is 0-d. Ragged rows and
/// mixed cells are errors that name the row: "W_Q: row [1] has 2 elements, row [0] has 3".
/// Errors: data.
Tensor tensor_from_json(const Json& json, const std::string& name);

/// Compact text. Floats get the fewest digits that read back as the same value, and always a '.'
/// or an exponent, so that a float stays a float.
std::string to_json(const Json& json);
std::string json_quoted(std::string_view text);

/// A tensor as nested arrays; rows of a matrix on lines of their own, indented by `indent` spaces.
/// indent < 0: all on one line. f32/f16/bf16 are written with the digits of their own precision.
std::string to_json(const Tensor& tensor, int indent);

}  // namespace attn
