#include "attn/cli/detached_value.h"

#include <CLI/CLI.hpp>

#include "attn/base/printable.h"
#include "attn/cli/draw.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

/// CLI11 has such names of flags only that were declared with a default, as "--view{-}".
bool takes_value_or_none(const CLI::Option& option) { return !option.get_fnames().empty(); }

bool is_value_of(const CLI::Option& option, const std::string& word) {
  for (const Field& field : job_fields())
    if (!field.flag.empty() && option.check_name(field.flag))
      return problem_with(field, value_of_flag(field, word, field.flag)).empty();
  return find_draw_format(word).has_value();  // the others draw
}

}  // namespace

std::string detached_value(const CLI::App& app, std::span<char* const> typed,
                           const std::string& word) {
  for (std::size_t i = 1; i < typed.size(); ++i) {
    if (typed[i] != word) continue;
    const std::string flag = typed[i - 1];
    const CLI::Option* option = flag.starts_with("--") ? app.get_option_no_throw(flag) : nullptr;
    if (option != nullptr && takes_value_or_none(*option) && is_value_of(*option, word))
      return "; " + flag + " takes its value as " + flag + "=" + printable(word);
  }
  return "";
}

}  // namespace attn
