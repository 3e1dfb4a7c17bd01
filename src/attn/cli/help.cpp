#include "attn/cli/help.h"

#include <algorithm>

namespace attn {
namespace {

constexpr std::size_t kColumn = 27;  // where explanations start
constexpr std::size_t kSubcommandColumn = 18;
constexpr std::size_t kWidth = 80;

/// `text` in lines of at most kWidth, the first from `indent` on, the others indented by it.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t space = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, space - start);
    if (column > indent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    start = space + 1;
  }
  return out;
}

/// "  NAME     WHAT", WHAT on the next line if NAME is too long.
std::string entry(const std::string& name, const std::string& what, std::size_t column) {
  std::string line = "  " + name;
  if (line.size() + 2 > column)
    line += "\n" + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + wrapped(what, column) + "\n";
}

/// "-o, --output PATH", with padding if there is no short name.
std::string flags_of(const Option& option) {
  if (option.is_positional()) return option.name();
  std::string text = option.names[0].starts_with("--") ? "    " : "";
  for (const std::string& name : option.names)
    text += (text.ends_with(' ') || text.empty() ? "" : ", ") + name;
  return text + (option.takes_value() ? " " : "") + option.placeholder;
}

std::string wrapped_paragraphs(const std::string& text) {
  std::string out;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", start), text.size());
    out += (out.empty() ? "" : "\n\n") + wrapped(text.substr(start, end - start), 0);
    start = end + 2;
  }
  return out + "\n";
}

}  // namespace

std::string synopsis_of(const Option& argument) {
  const std::string name = argument.name() + (argument.is_repeatable() ? "..." : "");
  return argument.required ? name : "[" + name + "]";
}

std::vector<OptionGroup> option_groups(const Command& command) {
  std::vector<OptionGroup> groups = {{"Arguments", {}}};
  for (const Option& option : command.options) {
    if (option.group.empty()) continue;
    const std::string name = option.is_positional() ? "Arguments" : option.group;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const OptionGroup& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(group, {name, {}});
    group->options.push_back(&option);
  }
  if (groups[0].options.empty()) groups.erase(groups.begin());
  return groups;
}

std::string help_text(const Command& command, const std::string& name) {
  std::string text = wrapped_paragraphs(command.description);
  if (!command.example.empty()) text += "\nExample:\n" + command.example + "\n";
  text += "\nUsage: " + name + " [OPTIONS]";
  for (const Option& option : command.options)
    if (option.is_positional()) text += " " + synopsis_of(option);
  text += command.subcommands.empty() ? "\n" : " [SUBCOMMAND]\n";
  for (const OptionGroup& group : option_groups(command)) {
    text += "\n" + group.name + ":\n";
    for (const Option* option : group.options)
      text += entry(flags_of(*option), option->help, kColumn);
  }
  if (!command.subcommands.empty()) text += "\nSubcommands:\n";
  for (const Command& subcommand : command.subcommands)
    text += entry(subcommand.name, subcommand.summary, kSubcommandColumn);
  if (!command.notes.empty()) text += "\n" + command.notes;
  return text;
}

}  // namespace attn
