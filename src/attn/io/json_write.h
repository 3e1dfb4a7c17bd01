// JSON values (RFC 8259) and their text.
//
// Reading is stricter than in most readers: duplicate keys, invalid UTF-8, numbers that overflow,
// NUL bytes, text after the document and nesting beyond 72 levels are errors with line and column.
// Integers stay integers. NaN and infinities, which JSON cannot represent, are the strings "NaN",
// "Infinity" and "-Infinity".
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "attn/tensor/tensor.h"

namespace attn {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in the document's order

/// A compact array of integers. An array in which an element is a float, or the string "NaN",
/// "Infinity" or "-Infinity", is JsonFloats. (In an array that mixes numbers with other values,
/// numbers converted to floats in this way stay floats.) Not an alias, because a std::variant of
/// only strings and vectors is destroyed wrongly by libstdc++ 12 if a copy fails for lack of
/// memory.
struct JsonIntegers : std::vector<std::int64_t> {
  using vector::vector;
};
using JsonFloats = std::vector<double>;

/// Throws Error(data): "expected a string, found an array".
[[noreturn]] void fail_kind(const Json& expected, const Json* found);

/// What Json::get() returns: a pointer to the value if it has type T, otherwise null. Using null
/// throws Error(data), so that no document can make the program read what is not there.
template <class T>
class JsonPointer {
 public:
  JsonPointer(std::nullptr_t = nullptr) {}
  JsonPointer(T* value, const Json& json) : value_(value), json_(&json) {}

  explicit operator bool() const { return value_ != nullptr; }
  bool operator==(std::nullptr_t) const { return value_ == nullptr; }
  T& operator*() const;
  T* operator->() const { return &**this; }

 private:
  T* value_ = nullptr;
  const Json* json_ = nullptr;
};

/// A value. Arrays that contain only numbers are JsonIntegers or JsonFloats; all others are
/// JsonArray, including empty arrays and arrays with an integer that does not fit std::int64_t.
/// std::uint64_t is used only for such integers.
class Json {
 public:
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string,
                             JsonArray, JsonObject, JsonIntegers, JsonFloats>;

  Json() = default;
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Json>) explicit Json(T&& value)
      : value_(std::forward<T>(value)) {}

  template <class T>
  JsonPointer<const T> get() const {
    return {std::get_if<T>(&value_), *this};
  }
  template <class T>
  JsonPointer<T> get() {
    return {std::get_if<T>(&value_), *this};
  }
  template <class T, class... Arguments>
  T& emplace(Arguments&&... arguments) {
    return value_.emplace<T>(std::forward<Arguments>(arguments)...);
  }
  const Value& value() const { return value_; }
  const Json* find(std::string_view key) const;  ///< a member of an object, or nullptr
  bool is_array() const;
  /// For messages: "a string", "an object", "an integer", ...
  std::string kind() const;
  /// Sets `number` and returns true if this is a number or "NaN", "Infinity" or "-Infinity".
  bool as_number(double& number) const;

 private:
  Value value_ = nullptr;
};

template <class T>
T& JsonPointer<T>::operator*() const {
  if (value_ == nullptr) fail_kind(Json{std::remove_const_t<T>{}}, json_);
  return *value_;
}

/// indent < 0: compact. Otherwise each member of an object has its own line, indented by `indent`
/// spaces and two more for each level. Floats have the shortest digits that read back as the same
/// value. They contain a '.' or an exponent, so that readers do not take them for integers.
std::string to_json(const Json& json, int indent = -1);
void append_json(std::string& out, const Json& json, int indent = -1);

/// A string in double quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);
Json json_strings(const std::vector<std::string>& texts);

/// A tensor as nested arrays. indent < 0: on one line. Otherwise each row of a matrix has its own
/// line, indented by `indent` spaces and two more for each axis; the last bracket is indented by
/// two fewer. f32, f16 and bf16 are written as doubles: the digits read back as exactly the same
/// number, as a double and in the tensor's dtype. Errors: data, for more than a million rows
/// without elements.
std::string to_json(const Tensor& tensor, int indent);
void append_json(std::string& out, const Tensor& tensor, int indent);

}  // namespace attn
