// The keys of a job, in one table: the reader, the flags of `attn run`, its help and `attn schema`
// all come from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/base/error.h"
#include "attn/core/options.h"
#include "attn/io/json.h"

namespace attn {

/// What a key's value may be, beside the words that the field lists.
enum class FieldForm {
  tensor,  ///< nested numbers, "FILE", "FILE#NAME" or a random draw (job/random_spec.h)
  integer,
  number,
  boolean,
  word,      ///< one of `words` only
  integers,  ///< a list of whole numbers
  strings,   ///< a list of strings
  seed,      ///< a whole number or a list of them, of any size (digits in a string)
};

struct Field {
  std::string key;   ///< "W_Q", "heads"; "position.base" is the key base of object position
  std::string flag;  ///< "--wq"; "" when there is none
  FieldForm form = FieldForm::word;
  std::string placeholder;                                ///< in help: "FILE", "H"
  std::string what;                                       ///< one line
  std::vector<std::string> words = {};                    ///< words allowed
  std::optional<std::int64_t> minimum = {};               ///< of a number
  bool above = false;                                     ///< the minimum itself does not fit
  std::optional<std::size_t> length = {};                 ///< of a list
  bool may_be_empty = true;                               ///< a list of strings
  std::function<void(const Json&, Options&)> apply = {};  ///< into Options; none: it is not one
};

const std::vector<Field>& job_fields();
const Field* find_field(std::string_view key);

/// What is wrong with a value of this field; nothing where it fits.
std::optional<Problem> problem_with(const Field& field, const Json& value);

/// What a number that is typed as a flag means: an integer where JSON has one, ".5" and "1.", too;
/// nothing where it is none.
std::optional<Json> number_of_flag(const std::string& text);

/// What a flag's text means: "2,0" is a list, "auto" a word, "0.5" a number, "[[1, 2]]" or
/// "{...}" inline JSON for a tensor. `name` is the flag, for errors.
Json value_of_flag(const Field& field, const std::string& text, const std::string& name);

/// The JSON Schema (draft 2020-12) of a job document.
std::string job_schema();

}  // namespace attn
