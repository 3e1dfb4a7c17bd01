// Parses JSON. The fast reader io/json_plain.h is tried first; what it rejects, nlohmann/json
// parses, which also reports errors (docs/decisions/0013-two-json-readers.md).
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "attn/base/error.h"
#include "attn/io/json_write.h"
#include "attn/io/read_budget.h"

namespace attn {

/// Levels of nesting that are read: an array of Shape::kMaxAxes axes and the objects around it.
inline constexpr std::size_t kMaxJsonDepth = Shape::kMaxAxes + 8;

/// Elements that are reserved for each array and object. Most are short, and reallocation is slow.
inline constexpr std::size_t kFewElements = 4;

/// Collects the elements of an array in the most compact form that holds them.
class JsonRow {
 public:
  explicit JsonRow(MemoryCharge& charge) : charge_(&charge) {}
  void add(Json&& element);
  void add(std::int64_t integer) {
    const auto integers = row_.get<JsonIntegers>();
    if (!integers) return add_first<JsonIntegers>(integer);
    charge_->grow(*integers);
    integers->push_back(integer);
  }
  void add(double number) {
    const auto floats = row_.get<JsonFloats>();
    if (!floats) return add_first<JsonFloats>(number);
    charge_->grow(*floats);
    floats->push_back(number);
  }
  Json take() { return std::move(row_); }
  bool empty() const { return empty_; }

 private:
  template <class T>
  void append(std::vector<T>& elements, T&& element) {
    if (elements.empty()) charge_->reserve(elements, kFewElements);
    charge_->grow(elements);
    elements.push_back(std::move(element));
  }
  template <class T>
  JsonArray spread(const std::vector<T>& numbers);
  template <class Numbers>
  void add_first(typename Numbers::value_type number);
  void add_number(double number);

  MemoryCharge* charge_;
  Json row_{JsonArray{}};
  std::size_t words_ = 0;  ///< strings at the start that are "NaN" and the like
  bool empty_ = true;
};

/// Detects duplicate keys of an object.
class JsonKeys {
 public:
  /// Returns false if one of `members`, which were read so far, has the key.
  bool add(std::span<const JsonObject::value_type> members, const std::string& key,
           MemoryCharge& charge);

 private:
  bool insert(const std::string& key, MemoryCharge& charge);

  std::set<std::string>
      keys_;  ///< used for large objects only; ordered, because hashes can be made to collide
};

/// The state of the reader at an error.
enum class JsonState {
  start,         ///< nothing read yet
  end,           ///< the whole value has been read
  array_start,   ///< after '['
  array_value,   ///< after a value of an array
  object_start,  ///< after '{'
  object_key,    ///< after a key
  object_value,  ///< after a value of an object
};

/// A syntax error. The text before offset `good` is valid; the reader has read the text before
/// offset `read`.
struct JsonSyntaxError {
  std::string_view text;
  JsonState state;
  std::size_t good, read;
};

/// "line 3, column 7: expected a value, found ','"
Problem syntax_problem(const JsonSyntaxError& error);

/// For a number at `at` that fits neither a double nor a 64-bit integer.
Problem overflow_problem(std::string_view text, std::size_t at);

/// `name` is used in errors: "NAME: line 3, column 7: expected a value, found ','". Errors: data.
Json parse_json(std::string_view text, const std::string& name);
/// Charges the memory of the value to `charge`.
Json parse_json(std::string_view text, const std::string& name, MemoryCharge& charge);

}  // namespace attn
