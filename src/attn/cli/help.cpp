#include "attn/cli/help.h"

#include <algorithm>
#include <string_view>

#include "attn/base/text.h"

extern "C" {
extern const char attn_topics_begin[], attn_topics_end[];
}

namespace attn {
namespace {

constexpr std::size_t kTopicWidth = 76;  // 80 without the margins of a manual page

std::string output_lines(std::string_view name, const std::string& shape, std::string what) {
  std::string text, line = "  " + std::string(name);
  line.resize(std::max<std::size_t>(line.size() + 1, 18), ' ');
  line += shape;
  const bool is_wide = line.size() >= 32;
  line.resize(is_wide ? line.size() : 32, ' ');
  if (is_wide) {  // the description follows on the next line
    text += line + "\n";
    line.assign(32, ' ');
  }
  while (line.size() + what.size() > kTopicWidth) {  // continued on the next line
    const std::size_t cut = what.rfind(' ', kTopicWidth - line.size());
    text += line + what.substr(0, cut) + "\n";
    what = what.substr(cut + 1);
    line.assign(32, ' ');
  }
  return text + line + what + "\n";
}

/// One line per output: name, shape and description.
std::string outputs_table() {
  std::string text;
  for (const OutputRow& output : kOutputs)
    text += output_lines(output.name, output.axes.text(), std::string(output.description));
  return text + output_lines("grad_NAME", "(as NAME)", gradient_description("the input NAME"));
}

/// A topic starts with a line "= NAME: SUMMARY".
std::vector<Topic> read_topics() {
  std::vector<Topic> all;
  std::string_view rest(attn_topics_begin,
                        static_cast<std::size_t>(attn_topics_end - attn_topics_begin));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (line.starts_with("= ")) {
      const std::size_t colon = line.find(": ");
      all.push_back({line.substr(2, colon - 2), line.substr(colon + 2), ""});
    } else {
      all.back().text += line == "@OUTPUTS@" ? outputs_table() : line + "\n";
    }
  }
  for (Topic& topic : all)
    while (topic.text.ends_with("\n\n")) topic.text.pop_back();
  return all;
}

}  // namespace

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = read_topics();
  return all;
}

const Topic* find_topic(const std::string& name) {
  for (const Topic& topic : topics())
    if (topic.name == name) return &topic;
  return nullptr;
}

std::vector<std::string> topic_names() { return texts_of(topics(), &Topic::name); }

namespace {

constexpr std::size_t kColumn = 27;  // where explanations start
constexpr std::size_t kSubcommandColumn = 18;
constexpr std::size_t kWidth = 80;

/// `text` in lines of at most kWidth columns. The first line continues at column `indent`; the
/// others are indented by `indent`.
std::string wrapped(const std::string& text, std::size_t indent) {
  const auto fits = [&](const std::string& line) { return indent + line.size() <= kWidth; };
  return join(wrapped_lines(text, fits), "\n" + std::string(indent, ' '));
}

}  // namespace

std::string help_entry(const std::string& name, const std::string& what, std::size_t column) {
  std::string line = "  " + name;
  if (line.size() + 2 > column)
    line += "\n" + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + wrapped(what, column) + "\n";
}

std::string flags_of(const Option& option) {
  if (option.is_positional()) return option.name();
  std::string text = option.names[0].starts_with("--") ? "    " : "";
  for (const std::string& name : option.names)
    text += (text.ends_with(' ') || text.empty() ? "" : ", ") + name;
  return text + (option.takes_value() ? " " : "") + option.placeholder;
}

namespace {

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
    const std::string_view name = option.is_positional() ? "Arguments" : option.group;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const OptionGroup& other) { return other.name == name; });
    if (group == groups.end()) group = groups.insert(group, {std::string(name), {}});
    group->options.push_back(&option);
  }
  if (groups[0].options.empty()) groups.erase(groups.begin());
  return groups;
}

namespace {

/// Description, examples, usage, and the groups of those options for which `is_listed`.
std::string text_of_options(const Command& command, const std::string& name,
                            bool (*is_listed)(const Option& option)) {
  std::string text = wrapped_paragraphs(command.description);
  if (!command.example.empty()) text += "\nExample:\n" + command.example + "\n";
  text += "\nUsage: " + name + " [OPTIONS]";
  for (const Option& option : command.options)
    if (option.is_positional()) text += " " + synopsis_of(option);
  text += command.subcommands.empty() ? "\n" : " [SUBCOMMAND]\n";
  for (const OptionGroup& group : option_groups(command)) {
    std::string entries;
    for (const Option* option : group.options)
      if (is_listed(*option))
        entries += help_entry(flags_of(*option), option->texts().help, kColumn);
    if (!entries.empty()) text += "\n" + group.name + ":\n" + entries;
  }
  return text;
}

bool is_common(const Option& option) { return option.is_common || option.is_positional(); }

}  // namespace

std::string help_text(const Command& command, const std::string& name) {
  std::string text = text_of_options(command, name, [](const Option&) { return true; });
  if (!command.subcommands.empty()) text += "\nSubcommands:\n";
  for (const Command& subcommand : command.subcommands)
    text += help_entry(subcommand.name, subcommand.summary, kSubcommandColumn);
  if (!command.notes.empty()) text += "\n" + command.notes;
  return text;
}

std::string short_help_text(const Command& command, const std::string& name) {
  constexpr std::ptrdiff_t kLong = 60;  // lines
  std::string all = help_text(command, name);
  if (std::count(all.begin(), all.end(), '\n') <= kLong) return all;
  const auto count = std::count_if(
      command.options.begin(), command.options.end(),
      [](const Option& option) { return !option.group.empty() && !option.is_positional(); });
  return text_of_options(command, name, is_common) + "\n'" + name + " --help' lists all " +
         std::to_string(count) + " options.\n";
}

}  // namespace attn
