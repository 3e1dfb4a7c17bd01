#include "attn/job/print_settings.h"

#include <string_view>

#include "attn/job/field_value.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

std::string style_key() { return std::string(kPrintOptions) + "style"; }

TextStyle style_of(const Document& settings) {
  const Entry* entry = settings.find(style_key());
  const std::string style = entry == nullptr ? "" : *word_of(entry->value);
  return style == "torch" ? TextStyle::torch
         : style == "jax" ? TextStyle::jax
         : style == "tf"  ? TextStyle::tf
                          : TextStyle::numpy;
}

/// `name` is a key of print_options other than style.
void set_print_option(PrintOptions& print, std::string_view name, const Json& value) {
  using enum PrintOptions::FloatMode;
  using enum PrintOptions::SciMode;
  if (name == "suppress")
    print.suppress = *value.get<bool>();
  else if (name == "requires_grad")
    print.requires_grad = *value.get<bool>();
  else if (name == "numpy")
    print.numpy = static_cast<int>(integer_of(value));
  else if (name == "precision")
    print.precision = static_cast<int>(integer_of(value));
  else if (name == "threshold")
    print.threshold = integer_of(value);
  else if (name == "edgeitems")
    print.edgeitems = static_cast<int>(integer_of(value));
  else if (name == "linewidth")
    print.linewidth = static_cast<int>(integer_of(value));
  else if (const std::string& word = *word_of(value); name == "floatmode")
    print.floatmode = word == "fixed"     ? fixed
                      : word == "unique"  ? unique
                      : word == "maxprec" ? maxprec
                                          : maxprec_equal;
  else if (name == "sci_mode")
    print.sci_mode = word == "always" ? always : word == "never" ? never : automatic;
  else if (name == "grad_fn")
    print.grad_fn = word;
}

}  // namespace

Document print_settings_of(const Document& document) {
  Document settings;
  settings.name = document.name;
  for (const Entry& entry : document.entries)
    if (entry.key.starts_with(kPrintOptions)) settings.entries.push_back(entry);
  return settings;
}

PrintOptions print_options_of(const Document& settings, const Document& flags) {
  if (!flags.entries.empty()) {
    Job job;
    Document& given = job.document;
    given = flags;
    if (const Entry* style = settings.find(style_key());
        style != nullptr && !flags.find(style_key()))
      given.set(*style);
    check_key_requirements(job);
  }
  Document all = settings;
  all.set_all(flags);
  PrintOptions print = PrintOptions::defaults_of(style_of(all));
  for (const Entry& entry : all.entries)
    if (entry.key.starts_with(kPrintOptions) && entry.key != style_key())
      set_print_option(print, std::string_view(entry.key).substr(kPrintOptions.size()),
                       entry.value);
  return print;
}

}  // namespace attn
