#include "attn/cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace attn {
namespace {

constexpr std::size_t kColumn = 27;  // where explanations start
constexpr std::size_t kWidth = 80;

/// `text` in lines of at most kWidth, the first from `indent` on, each after it indented so.
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

/// "N", without what CLI11 adds to it for a check: "N:NONNEGATIVE".
std::string placeholder_of(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

/// "-o, --output PATH": short name, long name, what it takes.
std::string flags_of(const CLI::Option& option, bool positional) {
  if (positional) return option.get_name(true);
  std::string text;
  for (const std::string& name : option.get_snames()) text += "-" + name + ", ";
  if (text.empty()) text = "    ";
  for (const std::string& name : option.get_lnames())
    text += (text.ends_with(' ') ? "--" : ", --") + name;
  const bool takes_one = option.get_expected_min() > 0;
  const std::string placeholder = placeholder_of(option);
  if (placeholder.starts_with("[=")) return text + placeholder;  // it may stand alone
  return takes_one ? text + " " + placeholder : text;
}

/// The paragraphs before "Example:" filled to kWidth, whatever the lines in the source.
std::string filled(const std::string& text) {
  const std::size_t example = std::min(text.find("\nExample:"), text.size());
  std::string out;
  for (std::size_t start = 0; start < example;) {
    const std::size_t end = std::min(text.find("\n\n", start), example);
    std::string paragraph = text.substr(start, end - start);
    std::replace(paragraph.begin(), paragraph.end(), '\n', ' ');
    out += (out.empty() ? "" : "\n\n") + wrapped(paragraph, 0);
    start = end + 2;
  }
  return out + "\n" + text.substr(example);
}

/// Without more than one empty line at a time.
std::string closed_up(std::string text) {
  for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("Positionals", "Arguments");
    column_width(18);
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return closed_up(CLI::Formatter::make_help(app, std::move(name), mode));
  }

  std::string make_description(const CLI::App* app) const override {
    return filled(app->get_description()) + "\n";
  }

  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string line = "  " + flags_of(*option, positional);
    if (line.size() + 2 > kColumn)
      line += "\n" + std::string(kColumn, ' ');
    else
      line.resize(kColumn, ' ');
    return line + wrapped(option->get_description(), kColumn) + "\n";
  }

  std::string make_group(std::string group, bool positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = "\n" + group + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, positional);
    return text;
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "\n" + CLI::Formatter::make_usage(app, std::move(name));
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace attn
