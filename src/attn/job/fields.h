// The keys of a job, in one table. The reader of job files, the flags of `attn run`, their help,
// the checks of values and requirements, and `attn schema` are all generated from it. A requirement
// is checked for each key that the job gives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/io/json_write.h"
#include "attn/job/job.h"
#include "attn/problem/options.h"

namespace attn {

/// What the value of a key may be, apart from the words that the field lists.
enum class FieldType {
  tensor,  ///< nested numbers, "FILE", "FILE#NAME" or a random tensor (job/random_spec.h)
  integer,
  number,
  boolean,
  word,      ///< one of `words` only
  text,      ///< a string
  integers,  ///< a list of integers
  strings,   ///< a list
  seed,      ///< an integer or a list of them, of any size (digits in a string)
  draws,     ///< a list of steps (job/draws.h)
};

/// Facts about a job that a key may require. heads_of_embeddings: the number of heads is given, or
/// there are no embeddings.
enum class Fact {
  four_axes,
  three_axes,
  three_axes_of_Q,
  boolean_mask,
  random_tensor,
  heads_of_embeddings
};

/// What else a job must have, or must not have, when a key is given and its value is not the
/// default. Of the members below `when`, one or two are set. The texts are never destroyed.
struct KeyRequirement {
  using Texts = std::span<const std::string_view>;
  Texts when = {};                  ///< applies to these values of the key only; empty: all
  Texts any_of = {};                ///< one of these keys is given, other than its default
  Texts none_of = {};               ///< none of these keys is given, other than its default
  Texts absent = {};                ///< none of these keys is given at all
  std::string_view key = {};        ///< this key has as its value ...
  Texts words = {};                 ///< ... one of these (or its default, if that is one)
  std::string_view same_word = {};  ///< this key, if it is given as a word, must have the same word
  std::optional<Fact> fact = {};
};

struct Field {
  std::string key;  ///< "W_Q", "heads"; "position.base" is the key "base" of the object "position"
  std::string flag = {};                      ///< "--w-q"; "" if there is none
  std::vector<std::string> other_flags = {};  ///< accepted, too: "--wq"
  FieldType type = FieldType::word;
  bool names_tensors = false;         ///< a group of tensors, whose names follow the key and a dot
  std::optional<Input> input = {};    ///< of a tensor that is an input
  std::string_view placeholder = {};  ///< in help: "FILE", "H"; these texts are constants
  std::string_view help = {};         ///< one line
  bool is_common = false;             ///< among the flags that -h lists
  std::string_view example = {};      ///< a value, for messages
  std::string_view expected = {};     ///< in messages, in place of what the type says
  std::string_view flag_expected = {};                            ///< the same for the flag
  std::vector<std::string> words = {};                            ///< allowed words
  std::vector<std::pair<std::string, std::string>> refused = {};  ///< other words, and why not
  std::optional<std::int64_t> min = {};                           ///< of a number
  std::optional<std::int64_t> max = {};                           ///< of an integer that has a min
  bool exclusive_min = false;                                     ///< `min` itself is not allowed
  std::optional<std::int64_t> less_than = {};                     ///< of a number that has a min
  std::optional<std::size_t> length = {};                         ///< of a list
  bool may_be_empty = true;                                       ///< a list of strings
  bool single = false;  ///< one string or integer is accepted in place of a list
  std::vector<KeyRequirement> requirements = {};
  std::function<void(const Json&, Options&)> apply =
      {};  ///< stores the value in Options; empty: not an option

  /// Other spellings in a JSON document: "rotary_base" for "rotary.base".
  std::vector<std::string> other_keys() const;
};

/// The fields, with a flag for each key: "--" and the key in lower case, with '-' for '.' and '_'.
const std::vector<Field>& job_fields();

/// The fields of print_options, which are among job_fields(). Not only 'attn run' but every command
/// that prints arrays has their flags (cli/shared_options.h).
std::vector<Field> print_option_fields();
inline constexpr std::string_view kPrintOptions = "print_options.";
/// The field of a key, or of the group of tensors that the key is in; nullptr if there is none.
const Field* find_field(std::string_view key);

/// The field that has `key` among its other_keys().
const Field* find_field_by_other_key(std::string_view key);

/// Whether this value is the default, so that giving it changes nothing. Always false for keys that
/// are not options.
bool is_default(const Field& field, const Json& value);

/// Whether a rule has the name of a table of mask_tables. It may be without effect if a flag gives
/// the rule, which the author of the file did not know, or if all jobs of a batch share it.
enum class TableUse { used, warning, error };
TableUse use_of_table(const Entry& table, const Document& document);

/// Checks the requirements of the field table for all keys that were given with a value other than
/// the default: "--top-k: requires --normaliser top_k". Keys shared by all jobs of a batch are
/// allowed to have no effect. Errors: usage if only flags are at fault, otherwise data.
void check_key_requirements(const Job& job);

}  // namespace attn
