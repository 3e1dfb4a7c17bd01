#include "attn/cli/job_flags.h"

#include "attn/job/fields.h"
#include "attn/result/output_target.h"

namespace attn {
namespace {

std::string group_of(const Field& field) {
  if (field.form == FieldForm::tensor) return "Tensors";
  for (const char* group : {"position.", "rotary.", "qk_norm"})
    if (field.key.rfind(group, 0) == 0) return "Positions";
  return field.apply ? "Attention" : "Job";
}

std::string help_of(const Field& field) {
  std::string text = field.what;
  if (field.form != FieldForm::word) return text;
  text += ":";
  for (std::size_t i = 0; i < field.words.size(); ++i)
    text += (i == 0 ? " " : i + 1 == field.words.size() ? " or " : ", ") + field.words[i];
  return text;
}

Option option_of(const Field& field, JobFlags& flags) {
  Option option;
  if (field.form == FieldForm::boolean) {
    const auto accepts = [&field](const std::string& word) {
      return !problem_with(field, value_of_flag(field, word, field.flag));
    };
    option =
        optional_value(field.flag, flags.switches[field.key], "true", "", help_of(field), accepts);
  } else {
    const auto store = [&flags, key = field.key](const std::string& value) {
      flags.texts[key] = value;
    };
    option = text(field.flag, Store<std::string>(store), field.placeholder, help_of(field));
    if (field.key == "outputs") option.suggestions = job_output_names();
  }
  if (field.form == FieldForm::word) option.suggestions = field.words;
  option.group = group_of(field);
  return option;
}

/// What was typed for a field, or nullptr.
const std::string* given(const JobFlags& flags, const Field& field) {
  const auto text = flags.texts.find(field.key);
  if (text != flags.texts.end()) return &text->second;
  const auto on = flags.switches.find(field.key);
  return on == flags.switches.end() || on->second.empty() ? nullptr : &on->second;
}

}  // namespace

std::vector<Option> job_options(JobFlags& flags) {
  std::vector<Option> options;
  for (const Field& field : job_fields())
    if (!field.flag.empty()) options.push_back(option_of(field, flags));
  return options;
}

Option nan_option(NanPolicy& policy) {
  return word(
      "--nan", policy,
      {{"warn", NanPolicy::warn}, {"allow", NanPolicy::allow}, {"refuse", NanPolicy::refuse}},
      "if a result contains NaN: warn, allow or refuse (exit 65)");
}

void apply_job_flags(const JobFlags& flags, Document& document) {
  for (const Field& field : job_fields()) {
    const std::string* text = given(flags, field);
    if (text == nullptr) continue;
    document.set({field.key, value_of_flag(field, *text, field.flag), field.flag, "", true});
  }
}

}  // namespace attn
