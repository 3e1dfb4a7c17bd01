// Values of fields: whether a JSON value fits, conversion, and parsing of flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/base/error.h"
#include "attn/io/json_write.h"
#include "attn/job/fields.h"

namespace attn {

/// Replaced by the number of the layer in the names of hidden states and of results.
inline constexpr std::string_view kLayerWord = "{layer}";

/// As in JSON Schema, 2.0 is an integer, within the range in which floats are exact.
bool is_whole(double value);

/// Whether this is one of the field's words.
bool is_word(const Field& field, const std::string& text);

/// What is wrong with a value of this field; nullopt if it is valid.
std::optional<Problem> problem_with(const Field& field, const Json& value, bool from_flag = false);

/// The value of a number given as a flag: an integer if possible. Also accepts ".5" and "1.".
/// nullopt if the text is not a number.
std::optional<Json> number_from_flag(const std::string& text);

/// The value of a flag's text: "2,0" is a list, "auto" a word, "0.5" a number, "[[1, 2]]" or
/// "{...}" inline JSON for a tensor. `flag` is for errors.
Json value_from_flag(const Field& field, const std::string& text, const std::string& flag);

// Conversions of values that are known to be valid.
std::int64_t integer_of(const Json& value);  ///< 2.0 is 2
inline JsonPointer<const std::string> word_of(const Json& value) {
  return value.get<std::string>();
}
double number_of(const Json& value);
std::vector<std::int64_t> integers_of(const Json& value);
std::vector<std::string> strings_of(const Json& value);  ///< a string is a list of one

}  // namespace attn
