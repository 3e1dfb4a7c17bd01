// The script of 'attn completions bash'.
#include "attn/base/grouped.h"
#include "attn/base/text.h"
#include "attn/cli/completions.h"

namespace attn {
namespace {

constexpr char kBashHeader[] =
    R"(# Completions of attn for bash: source this file, or install it as bash-completion/completions/attn.

# Sets what can follow a command: subcommands, flags, and those flags whose value is the next word.
_attn_enter() {
  command=$1
  case $1 in
)";

constexpr char kBashPlace[] = R"(  esac
}

_attn() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} word i
  local command subcommands flags valued arguments=0 equals= words= list= before= files=
  # bash takes --flag=word as three words, and 0:3, too
  [[ $previous == = ]] && equals=1 previous=${COMP_WORDS[COMP_CWORD-2]}
  [[ $current == = ]] && equals=1 current=
  _attn_enter ''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == [=:] || ($valued == *" $word "* && ${COMP_WORDS[i+1]} != =) ]]; then
      ((++i))
    elif [[ $subcommands == *" $word "* ]]; then
      _attn_enter "${command:+$command }$word"
    elif [[ $word != -?* ]]; then
      ((++arguments))
    fi
  done
  if [[ -n $equals || $valued == *" $previous "* ]]; then
    case "$command $previous" in
)";

constexpr char kBashArguments[] = R"(    esac
  elif [[ $current == -* ]]; then
    words=$flags
  else
    case "$command:$arguments" in
)";

constexpr char kBashReply[] = R"(    esac
  fi
  COMPREPLY=()
  [[ -n $list && $current == *,* ]] && before=${current%,*},
  [[ -n $words ]] &&
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${current#"$before"}")
  if [[ -n $files ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _attn attn
)";

/// For a search: each word between spaces.
std::string bash_words(const std::vector<std::string>& words) {
  return shell_quoted(" " + join(words, "", [](const std::string& word) { return word + " "; }));
}

std::string bash_command(const CompletedCommand& command) {
  const auto any = [](const Option&) { return true; };
  const auto takes_value = [](const Option& flag) { return flag.takes_value(); };
  return "    " + shell_quoted(command.path) +
         ") subcommands=" + bash_words(names_of(command.subcommands)) +
         " flags=" + bash_words(command.flags_with(any)) +
         " valued=" + bash_words(command.flags_with(takes_value)) + " ;;\n";
}

/// Assignments: "words='bhld blhd thd'", "files=1"; "" if nothing is known of the values.
std::string bash_values(const Option& option) {
  std::string text;
  const std::vector<std::string> words = offered_words(option);
  if (!option.listed_by.empty())
    text = " words=$(" + command_that_lists(option, "\"${COMP_WORDS[0]}\"") + ")";
  else if (!words.empty())
    text = " words=" + shell_quoted(join(words, " "));
  if (option.takes_list()) text += " list=1";
  return text + (takes_file(option) ? " files=1" : "");
}

/// Branches of a case statement: for each text, the patterns under which it applies.
std::string bash_branches(const Grouped<std::string>& patterns) {
  std::string branches;
  for (const auto& [assignments, cases] : patterns.groups())
    if (!assignments.empty())
      branches += "      " + join(cases, " | ") + ")" + assignments + " ;;\n";
  return branches;
}

std::string bash_flags(const std::vector<CompletedCommand>& commands) {
  Grouped<std::string> patterns;
  for (const CompletedCommand& command : commands)
    for (const Option& flag : command.flags)
      for (const std::string& name : flag.names)
        patterns.add(bash_values(flag), shell_quoted(command.path + " " + name));
  return bash_branches(patterns);
}

std::string bash_arguments(const std::vector<CompletedCommand>& commands) {
  Grouped<std::string> patterns;
  for (const CompletedCommand& command : commands) {
    if (!command.subcommands.empty())
      patterns.add(" words=$subcommands", shell_quoted(command.path + ":0"));
    for (const Option& argument : command.arguments)
      patterns.add(bash_values(argument),
                   shell_quoted(command.path + ":") + command.place_of(argument, 0, "*"));
  }
  return bash_branches(patterns);
}

}  // namespace

std::string bash_completions() {
  const std::vector<CompletedCommand> commands = completed_commands();
  return kBashHeader + join(commands, "", bash_command) + kBashPlace + bash_flags(commands) +
         kBashArguments + bash_arguments(commands) + kBashReply;
}

}  // namespace attn
