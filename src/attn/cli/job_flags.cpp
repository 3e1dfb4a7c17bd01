#include "attn/cli/job_flags.h"

#include <CLI/CLI.hpp>

#include "attn/cli/values.h"
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

void add_flag(CLI::App& app, const Field& field, JobFlags& flags) {
  CLI::Option* option = nullptr;
  if (field.form == FieldForm::boolean) {
    // It may stand alone; a value needs '=', as what follows may be the job file.
    option = app.add_flag(field.flag + "{true}", flags.switches[field.key], help_of(field));
  } else {
    const auto store = [&flags, key = field.key](const std::string& text) {
      flags.texts[key] = text;
    };
    option = app.add_option_function<std::string>(field.flag, store, help_of(field));
    option->type_name(field.placeholder);
    if (field.key == "outputs") option->check(offering(job_output_names()));
  }
  option->group(group_of(field));
}

/// What was typed for a field, or nullptr.
const std::string* given(const JobFlags& flags, const Field& field) {
  const auto text = flags.texts.find(field.key);
  if (text != flags.texts.end()) return &text->second;
  const auto on = flags.switches.find(field.key);
  return on == flags.switches.end() || on->second.empty() ? nullptr : &on->second;
}

}  // namespace

void add_job_flags(CLI::App& app, JobFlags& flags) {
  for (const Field& field : job_fields())
    if (!field.flag.empty()) add_flag(app, field, flags);
}

void add_nan_option(CLI::App& app, NanPolicy& policy) {
  const std::map<std::string, NanPolicy> words = {
      {"warn", NanPolicy::warn}, {"allow", NanPolicy::allow}, {"refuse", NanPolicy::refuse}};
  const auto store = [&policy, words](const std::string& text) { policy = words.at(text); };
  app.add_option_function<std::string>("--nan", store,
                                       "NaN in a result: warn, allow or refuse (exit 65)")
      ->check(one_of({"warn", "allow", "refuse"}))
      ->type_name("WORD")
      ->group("Results");
}

void apply_job_flags(const JobFlags& flags, Document& document) {
  for (const Field& field : job_fields()) {
    const std::string* text = given(flags, field);
    if (text == nullptr) continue;
    document.set({field.key, value_of_flag(field, *text, field.flag), field.flag, "", true});
  }
}

}  // namespace attn
