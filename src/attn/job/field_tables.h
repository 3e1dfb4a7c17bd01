// How the rows of the table of fields are written; for the files that hold its parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attn/job/fields.h"

namespace attn {

// The parts of the table.
std::vector<Field> tensor_fields();
std::vector<Field> attention_fields();  ///< what the softmax sees and how it weighs
std::vector<Field> position_fields();   ///< where tokens stand
std::vector<Field> rotary_fields();     ///< what is done to queries and keys before they meet
std::vector<Field> document_fields();   ///< the document itself: seed, tokens, outputs

// A value that is known to fit its field.
std::int64_t integer_of(const Json& value);  ///< 2.0 is 2
inline const std::string* word_of(const Json& value) { return value.get<std::string>(); }
double number_of(const Json& value);
std::vector<std::int64_t> integers_of(const Json& value);
/// Which of `words` it is.
std::size_t place_among(const std::vector<std::string>& words, const Json& value);

/// A field whose value is one word of an enum.
template <class Enum>
Field choice(std::string key, std::string flag, std::string what,
             std::vector<std::pair<std::string, Enum>> meanings, Enum& (*member)(Options&)) {
  Field field{.key = std::move(key),
              .flag = std::move(flag),
              .form = FieldForm::word,
              .placeholder = "WORD",
              .what = std::move(what)};
  for (const auto& [text, meaning] : meanings) field.words.push_back(text);
  field.apply = [words = field.words, meanings = std::move(meanings), member](const Json& value,
                                                                              Options& options) {
    member(options) = meanings.at(place_among(words, value)).second;
  };
  return field;
}

/// A finite number, at least `minimum` where that is given.
Field number_field(std::string key, std::string flag, std::string what,
                   std::optional<std::int64_t> minimum, double& (*member)(Options&));

/// The same field, which its minimum itself does not fit.
inline Field above(Field field) {
  field.above = true;
  return field;
}

/// true or false; as a flag it may stand alone.
Field switch_field(std::string key, std::string flag, std::string what, bool& (*member)(Options&));

}  // namespace attn
