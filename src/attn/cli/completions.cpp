// attn completions: prints scripts for completion in shells.
#include <algorithm>
#include <functional>
#include <memory>

#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/commands.h"
#include "attn/cli/terminal.h"

namespace attn {
namespace {

/// Quotes `text` for a shell.
std::string quoted(std::string text) {
  for (std::size_t i = 0; (i = text.find('\'', i)) != std::string::npos; i += 4)
    text.replace(i, 1, "'\\''");
  return "'" + text + "'";
}

struct CommandCompletions {
  std::string name, what;
  std::vector<Option> options;      ///< without positionals
  std::vector<std::string> words;   ///< values of the first argument, if they are known
  std::vector<std::string> takers;  ///< those of `words` that take names of examples
};

/// A shell command that prints the names of examples.
std::string command_that_lists(const CommandCompletions& offer, const std::string& program) {
  // They follow two spaces; headings do not.
  return program + " " + offer.name + " list 2>/dev/null | grep \"^  \" | cut -d\" \" -f3";
}

/// Whether values of the option are names of files or folders.
bool takes_file(const Option& option) {
  const std::string& value = option.placeholder;
  return value.find("FILE") != value.npos || value.find("PATH") != value.npos || value == "DIR";
}

/// Whether the option takes =true or =false.
bool is_boolean(const Option& option) { return !option.takes_value() && !takes_file(option); }

std::vector<CommandCompletions> all_completions() {
  std::vector<CommandCompletions> all;
  for (const CommandEntry& entry : commands()) {
    const Command command = make_command(entry);
    CommandCompletions offer{entry.name, entry.summary, {}, {}, {}};
    for (const Command& subcommand : command.subcommands) {
      offer.words.push_back(subcommand.name);
      for (const Option& option : subcommand.options)
        if (option.is_positional()) offer.takers.push_back(subcommand.name);
    }
    for (const Option& option : command.options) {
      if (!option.is_positional())
        offer.options.push_back(option);
      else if (offer.words.empty())
        offer.words = option.known_values();
    }
    all.push_back(std::move(offer));
  }
  return all;
}

/// All names of all options.
std::vector<std::string> flags_of_command(const CommandCompletions& offer) {
  std::vector<std::string> flags;
  for (const Option& option : offer.options)
    flags.insert(flags.end(), option.names.begin(), option.names.end());
  return flags;
}

/// Names of the options that `accepts` is true for, each between spaces.
std::string flags_with(const CommandCompletions& offer,
                       const std::function<bool(const Option&)>& accepts) {
  std::string flags = " ";
  for (const Option& option : offer.options)
    if (accepts(option)) flags += join(option.names, " ") + " ";
  return flags;
}

/// Values that are neither files nor known words: numbers, names.
bool takes_free_text(const Option& option) {
  return option.takes_value() && !takes_file(option) && option.known_values().empty();
}

std::string bash() {
  std::string values, flags, firsts, names, commands;
  for (const CommandCompletions& offer : all_completions()) {
    commands += (commands.empty() ? "" : " ") + offer.name;
    flags += "    " + offer.name + ") flags=" + quoted(join(flags_of_command(offer), " ")) +
             " booleans=" + quoted(flags_with(offer, is_boolean)) +
             " texts=" + quoted(flags_with(offer, takes_free_text)) + " ;;\n";
    if (!offer.words.empty())
      firsts += "    " + offer.name + ") words=" + quoted(join(offer.words, " ")) + " ;;\n";
    for (const std::string& word : offer.takers)
      names += "    " + quoted(offer.name + " " + word) + ") [[ " +
               quoted(flags_with(offer, takes_file)) + " == *\" $previous \"* ]] || words=$(" +
               command_that_lists(offer, "\"${COMP_WORDS[0]}\"") + ") ;;\n";
    for (const Option& option : offer.options) {
      if (option.known_values().empty()) continue;
      for (const std::string& name : option.names)
        values += "    " + quoted(offer.name + " " + name) +
                  ") words=" + quoted(join(option.known_values(), " ")) +
                  (option.takes_list() ? " list=1" : "") + " ;;\n";
    }
  }
  return "# Completions of attn for bash: source this file, or install it as "
         "bash-completion/completions/attn.\n"
         "_attn() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
         "  local list= before= equals= flags= booleans= texts=\n"
         "  # bash takes --flag=word as three words\n"
         "  [[ $previous == = ]] && equals=1 previous=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  [[ $current == = ]] && equals=1 current=\n"
         "  case ${COMP_WORDS[1]} in\n" +
         flags +
         "  esac\n"
         "  case \"${COMP_WORDS[1]} $previous\" in\n" +
         values +
         "  esac\n"
         "  [[ -n $equals && $booleans == *\" $previous \"* ]] && words='true false'\n"
         "  [[ -z $words && $texts == *\" $previous \"* ]] && return\n"
         "  [[ -n $list && $current == *,* ]] && before=${current%,*},\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    words=" +
         quoted(commands + " help --help --version") +
         "\n"
         "  elif [[ -z $words && $current == -* ]]; then\n"
         "    words=$flags\n"
         "  elif [[ -z $words ]] && ((COMP_CWORD == 2)); then\n"
         "    case ${COMP_WORDS[1]} in\n" +
         firsts + "    help) words=" + quoted(join(help_names(), " ")) +
         " ;;\n"
         "    esac\n"
         "  elif [[ -z $words ]]; then\n"
         "    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n" +
         names +
         "    esac\n"
         "  fi\n"
         "  if [[ -n $words ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$words\" -- "
         "\"${current#\"$before\"}\")\n"
         "  else\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
         "    compopt -o filenames 2>/dev/null\n"
         "  fi\n"
         "}\n"
         "complete -F _attn attn\n";
}

/// Escapes text for _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_values(const Option& option) {
  if (option.known_values().empty()) return takes_file(option) ? "_files" : " ";
  const std::string words = join(option.known_values(), " ");
  // The leading space keeps zsh from adding arguments of its own.
  return option.takes_list() ? " _values -s , " + option.placeholder + " " + words
                             : "(" + words + ")";
}

std::string zsh() {
  std::string commands, cases;
  for (const CommandCompletions& offer : all_completions()) {
    commands += "    " + quoted(offer.name + ":" + zsh_text(offer.what)) + "\n";
    cases += "    " + offer.name + ") _arguments -S";
    for (const Option& option : offer.options)
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        // "=": the value follows '=' or is the next word; "=-": only the former.
        const std::string equals = !is_long ? "" : option.takes_value() ? "=" : "=-";
        std::string spec = "*" + name + equals + "[" + zsh_text(option.texts().help) + "]";
        if (option.takes_value())
          spec += ":" + zsh_text(option.placeholder) + ":" + zsh_values(option);
        else if (is_long)
          spec += is_boolean(option) ? "::value:(true false)" : "::FILE:_files";
        cases += " \\\n      " + quoted(spec);
      }
    const std::string first = offer.words.empty() ? "_files" : "(" + join(offer.words, " ") + ")";
    const std::string rest = offer.takers.empty()
                                 ? "_files"
                                 : "{compadd -- $(" + command_that_lists(offer, "attn") + ")}";
    cases += " \\\n      " + quoted("1: :" + first) + " " + quoted("*: :" + rest) + " ;;\n";
  }
  return "#compdef attn\n# Completions of attn for zsh: install as _attn in a folder of $fpath.\n"
         "_attn() {\n  local -a commands=(\n" +
         commands + "    'help:show help for a command or a topic'\n" +
         "  )\n"
         "  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n"
         "  if ((CURRENT == 3)) && [[ $words[2] == help ]]; then\n    compadd " +
         join(help_names(), " ") +
         "\n    return\n  fi\n"
         "  shift words\n  ((CURRENT--))\n"
         "  case $words[1] in\n" +
         cases +
         "  esac\n}\n"
         "if [[ $funcstack[1] == _attn ]]; then _attn \"$@\"; else compdef _attn attn; fi\n";
}

/// What follows -x of an option in fish.
std::string fish_values(const Option& option) {
  const std::string words = join(option.known_values(), " ");
  return " -a " + quoted(option.takes_list() ? "(__attn_in_list " + words + ")" : words);
}

std::string fish() {
  std::string text =
      "# Completions of attn for fish: install as attn.fish in vendor_completions.d.\n"
      "# Prints each word after those of the list at the cursor.\n"
      "function __attn_in_list\n"
      "  set -l before (commandline -ct | string replace -r '^--[^=]*=' '' | string match -r "
      "'.*,')\n"
      "  printf '%s\\n' \"$before\"$argv\n"
      "end\n";
  text +=
      "complete -c attn -n __fish_use_subcommand -f -a help -d 'show help for a command or topic'\n"
      "complete -c attn -n '__fish_seen_subcommand_from help' -f -a " +
      quoted(join(help_names(), " ")) + "\n";
  for (const CommandCompletions& offer : all_completions()) {
    text += "complete -c attn -n __fish_use_subcommand -f -a " + offer.name + " -d " +
            quoted(offer.what) + "\n";
    const std::string within =
        "complete -c attn -n '__fish_seen_subcommand_from " + offer.name + "'";
    if (!offer.words.empty()) text += within + " -f -a " + quoted(join(offer.words, " ")) + "\n";
    if (!offer.takers.empty())
      text += "complete -c attn -n '__fish_seen_subcommand_from " + offer.name +
              "; and __fish_seen_subcommand_from " + join(offer.takers, " ") + "' -f -a " +
              quoted("(" + command_that_lists(offer, "attn") + ")") + "\n";
    for (const Option& option : offer.options) {
      text += within;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value())
        text += takes_file(option) && option.known_values().empty() ? " -r"
                : option.known_values().empty()                     ? " -x"
                                                                    : " -x" + fish_values(option);
      else if (is_boolean(option))
        text += " -f -a 'true false'";
      text += " -d " + quoted(option.texts().help) + "\n";
    }
  }
  return text;
}

}  // namespace

Command completions_command() {
  const auto shell = std::make_shared<std::string>();
  Command command;
  command.description = "Prints shell completions for attn: commands, flags and their values.";
  command.example =
      "  attn completions bash > attn.bash\n"
      "  attn completions zsh > _attn";
  command.add(required(word("SHELL", *shell, {"bash", "zsh", "fish"}, "bash, zsh or fish")));
  command.action = [shell] {
    print_data(*shell == "bash" ? bash() : *shell == "zsh" ? zsh() : fish());
    return 0;
  };
  return command;
}

}  // namespace attn
