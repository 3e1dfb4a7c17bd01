#include "attn/job/key_requirements.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

bool is_among(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// "a, b or c"
std::string either(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

const char* text_of(Fact fact) {
  switch (fact) {
    case Fact::four_axes:
      return "Q, K and V with 4 axes";
    case Fact::three_axes:
      return "inputs with 3 axes";
    case Fact::boolean_mask:
      return "a boolean mask";
    case Fact::random_tensor:
      return "a random tensor";
    case Fact::heads_of_embeddings:
      break;
  }
  return "the number of heads, for which PyTorch has no default: --heads";
}

bool is_boolean(const Job& job, Input input) {
  const Tensor* mask = find(job.tensors, input);
  return mask != nullptr && !is_float(mask->dtype());
}

bool holds(Fact fact, const Job& job, const Document& document) {
  const Tensor* Q = find(job.tensors, Input::Q);
  const Tensor* rows = Q != nullptr ? Q : find(job.tensors, Input::embeddings);
  switch (fact) {
    case Fact::four_axes:
      return Q != nullptr && Q->rank() == 4;
    case Fact::three_axes:
      return rows == nullptr || rows->rank() == 3;
    case Fact::boolean_mask:
      return is_boolean(job, Input::mask) || is_boolean(job, Input::key_mask);
    case Fact::heads_of_embeddings:
      return job.options.heads > 0 || !contains(job.tensors, Input::embeddings);
    case Fact::random_tensor:
      break;
  }
  return std::any_of(document.entries.begin(), document.entries.end(), [](const Entry& entry) {
    return find_field(entry.key)->type == FieldType::tensor && entry.value.get<JsonObject>();
  });
}

/// One key that was given, and the rest of its job.
class Checker {
 public:
  Checker(const Entry& entry, const Job& job, const Document& document)
      : entry_(entry), field_(*find_field(entry.key)), job_(job), document_(document) {}

  /// What is wrong; nothing if all requirements are met.
  std::optional<Problem> problem() const {
    if (is_default(field_, entry_.value)) return std::nullopt;
    for (const KeyRequirement& requirement : field_.requirements) {
      if (!applies(requirement)) continue;
      const std::string message = message_of(requirement);
      if (message.empty()) continue;
      const std::string value = requirement.when.empty() ? "" : "'" + *word_of(entry_.value) + "' ";
      return Problem{.where = {entry_.origin},
                     .subject = entry_.from_flag ? "" : entry_.key,
                     .message = value + message};
    }
    return std::nullopt;
  }

  /// Whether the command line alone is at fault, not a file. Tensors are data.
  bool is_usage() const {
    const bool contradicts_file = std::any_of(
        field_.requirements.begin(), field_.requirements.end(), [&](const KeyRequirement& each) {
          const Entry* other = document_.find(each.same_word);
          return other != nullptr && !other->from_flag;
        });
    return entry_.from_flag && field_.type != FieldType::tensor && !contradicts_file;
  }

 private:
  bool applies(const KeyRequirement& requirement) const {
    if (!requirement.when.empty())
      return word_of(entry_.value) != nullptr && is_among(requirement.when, *word_of(entry_.value));
    const bool is_conflict = !requirement.none_of.empty() || !requirement.same_word.empty();
    return is_conflict || !entry_.shared || field_.type == FieldType::tensor;
  }

  bool is_active(const std::string& key) const {
    const Entry* entry = document_.find(key);
    return entry != nullptr && !is_default(*find_field(key), entry->value);
  }

  bool has_word(const std::string& key, const std::vector<std::string>& words) const {
    if (const Entry* entry = document_.find(key))
      return word_of(entry->value) != nullptr && is_among(words, *word_of(entry->value));
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return is_default(*find_field(key), Json{word});
    });
  }

  /// The key as the user would give it: in the way that this one was given.
  std::string name_of(const std::string& key) const {
    return entry_.from_flag ? find_field(key)->flag : key;
  }

  std::vector<std::string> names_of(const std::vector<std::string>& keys) const {
    std::vector<std::string> names;
    for (const std::string& key : keys) names.push_back(name_of(key));
    return names;
  }

  /// Empty if it is met.
  std::string message_of(const KeyRequirement& requirement) const {
    const auto active = [&](const std::string& key) { return is_active(key); };
    const auto& [when, any_of, none_of, key, words, same_word, fact] = requirement;
    if (!any_of.empty() && std::none_of(any_of.begin(), any_of.end(), active))
      return "requires " + either(names_of(any_of));
    if (const auto other = std::find_if(none_of.begin(), none_of.end(), active);
        other != none_of.end())
      return "cannot be combined with " + name_of(*other);
    if (!key.empty() && !has_word(key, words))
      return "requires " + name_of(key) + " " + either(words);
    if (const Entry* other = document_.find(same_word))
      if (const std::string* mine = word_of(entry_.value), *theirs = word_of(other->value);
          mine != nullptr && theirs != nullptr && *mine != *theirs)
        return *mine + " contradicts " + name_of(same_word) + " " + *theirs;
    if (fact && !holds(*fact, job_, document_)) return std::string("requires ") + text_of(*fact);
    return "";
  }

  const Entry& entry_;
  const Field& field_;
  const Job& job_;
  const Document& document_;
};

}  // namespace

void check_key_requirements(const Job& job, const Document& document) {
  ProblemList problems;
  bool only_usage = true;
  for (const Entry& entry : document.entries) {
    const Checker checker(entry, job, document);
    std::optional<Problem> problem = checker.problem();
    if (!problem) continue;
    only_usage = only_usage && checker.is_usage();
    problems.add(std::move(*problem));
  }
  if (!problems.empty()) problems.raise(only_usage ? ErrorKind::usage : ErrorKind::data);
}

}  // namespace attn
