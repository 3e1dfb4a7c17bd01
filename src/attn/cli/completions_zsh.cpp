// The script of 'attn completions zsh'.
#include "attn/base/text.h"
#include "attn/cli/completions.h"

namespace attn {
namespace {

constexpr char kZshHeader[] =
    R"(#compdef attn
# Completions of attn for zsh: install as _attn in a folder of $fpath.
_attn() {
  local context state state_descr line command=
  local -a subcommands
  typeset -A opt_args
  while true; do
    state=
    case $command in
)";

// In the state `subcommand`, _arguments has removed the words before it.
constexpr char kZshFooter[] = R"(    esac && return
    [[ $state == subcommand ]] || return
    command+="${command:+ }$words[1]"
  done
}
if [[ $funcstack[1] == _attn ]]; then _attn "$@"; else compdef _attn attn; fi
)";

/// Escapes text for _arguments and _describe.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// ":FILE:_files": the end of a specification.
std::string zsh_values(const Option& option) {
  const std::string words = join(offered_words(option), " ");
  std::string action = takes_file(option) ? "_files" : " ";
  if (!option.listed_by.empty())
    action = "{compadd -- $(" + command_that_lists(option, "attn") + ")}";
  else if (option.takes_list() && !words.empty())  // the space keeps zsh from adding arguments
    action = " _values -s , " + option.placeholder + " " + words;
  else if (takes_file(option) && !words.empty())
    action = "{compadd -- " + words + "; _files}";
  else if (!words.empty())
    action = "(" + words + ")";
  return ":" + zsh_text(option.placeholder) + ":" + action;
}

/// One for each name. "=": the value follows '=' or is the next word; "=-": only the former.
std::vector<std::string> zsh_flag(const Option& flag) {
  const bool may_have_value = is_boolean(flag) || !flag.placeholder.empty();
  std::vector<std::string> specs;
  for (const std::string& name : flag.names) {
    const bool is_long = name.starts_with("--");
    std::string equals, values;
    if (flag.takes_value()) {
      equals = is_long ? "=" : "";
      values = zsh_values(flag);
    } else if (is_long && may_have_value) {
      equals = "=-";
      values = ":" + zsh_values(flag);
    }
    specs.push_back("*" + name + equals + "[" + zsh_text(flag.texts().help) + "]" + values);
  }
  return specs;
}

std::vector<std::string> zsh_arguments(const CompletedCommand& command) {
  if (!command.subcommands.empty())
    return {"(-)1: :{_describe command subcommands}", "(-)*:: :->subcommand"};
  std::vector<std::string> specs;
  for (const Option& argument : command.arguments)
    specs.push_back(command.place_of(argument, 1, "*") + zsh_values(argument));
  return specs;
}

std::string zsh_command(const CompletedCommand& command) {
  std::string text = "    " + shell_quoted(command.path) + ")\n";
  if (!command.subcommands.empty()) {
    text += "      subcommands=(\n";
    for (const auto& [name, summary] : command.subcommands)
      text += "        " + shell_quoted(name + ":" + zsh_text(summary)) + "\n";
    text += "      )\n";
  }
  text += "      _arguments -S";
  const auto add = [&](const std::string& spec) { text += " \\\n        " + shell_quoted(spec); };
  for (const Option& flag : command.flags)
    for (const std::string& spec : zsh_flag(flag)) add(spec);
  for (const std::string& spec : zsh_arguments(command)) add(spec);
  return text + " ;;\n";
}

}  // namespace

std::string zsh_completions() {
  return kZshHeader + join(completed_commands(), "", zsh_command) + kZshFooter;
}

}  // namespace attn
