// JSON (RFC 8259) as attn reads and writes it.
//
// Stricter than most readers: a duplicate key, invalid UTF-8, a number that overflows, NUL bytes,
// anything after the document and nesting beyond 72 levels are errors that say where. Integers
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
/// all floats once one of them is, or is the string "NaN", "Infinity" or "-Infinity". (In an array
/// that mixes numbers with other things, those that became floats so stay floats.) A type of its
/// own, as libstdc++ 12 wrongly destroys what a std::variant of strings and vectors alone had only
/// begun to copy when memory ran out.
struct JsonIntegers : std::vector<std::int64_t> {
  using vector::vector;
};
using JsonFloats = std::vector<double>;

/// One value. An array of numbers alone is JsonIntegers or JsonFloats; any other is a JsonArray: an
/// empty one, one of strings alone, and one with an integer beyond std::int64_t. std::uint64_t
/// holds only such integers.
struct Json {
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray,
               JsonObject, JsonIntegers, JsonFloats>
      value = nullptr;

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  const Json* find(std::string_view key) const;  ///< a member of an object, or nullptr
  bool is_array() const;
  /// "a string", "an object", "an integer", …: for messages
  std::string kind() const;
  /// The number as a double, if this is a number or one of the strings "NaN", "Infinity",
  /// "-Infinity"; otherwise nothing.
  bool as_number(double& number) const;
};

/// `name` stands in errors: "NAME: line 3, column 7: expected a value, found ','". Errors: data.
Json parse_json(std::string_view text, const std::string& name);

/// Nested arrays of numbers (or booleans) as a tensor: int64 when every number is an integer
/// (uint64 when one needs it), float64 otherwise or when there are none, bool when every cell is a
/// boolean. A lone number is 0-d; [[]] is (1, 0). Ragged rows and mixed cells are errors that name
/// the row: "W_Q: row [1] has 2 elements, row [0] has 3". Errors: data.
Tensor tensor_from_json(const Json& json, const std::string& name);

/// indent < 0: compact. Otherwise the members of objects have lines of their own, `indent` spaces
/// and two more in for each level. Floats get the fewest digits that read back as the same value,
/// and always a '.' or an exponent, so that a float stays a float.
std::string to_json(const Json& json, int indent = -1);
void append_json(std::string& out, const Json& json, int indent = -1);

/// A string in double quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// A tensor as nested arrays. indent < 0: compact, on one line. Otherwise each row of a matrix has
/// a line of its own, indented by `indent` spaces and two more for each axis further in; the last
/// bracket stands two fewer in. f32/f16/bf16 are written with the digits of their own precision.
/// Errors: data, when millions of rows have no elements.
std::string to_json(const Tensor& tensor, int indent);
void append_json(std::string& out, const Tensor& tensor, int indent);

}  // namespace attn
