#include "attn/cli/help.h"

#include <CLI/CLI.hpp>

namespace attn {
namespace {

constexpr std::size_t kColumn = 27;  // where explanations start
constexpr std::size_t kWidth = 80;

/// `text` in lines of at most kWidth, each after the first indented to kColumn.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = kColumn;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t space = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, space - start);
    if (column > kColumn && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(kColumn, ' ');
      column = kColumn;
    } else if (column > kColumn) {
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
  return takes_one ? text + " " + placeholder_of(option) : text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string line = "  " + flags_of(*option, positional);
    if (line.size() + 2 > kColumn)
      line += "\n" + std::string(kColumn, ' ');
    else
      line.resize(kColumn, ' ');
    return line + wrapped(option->get_description()) + "\n";
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

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace attn
