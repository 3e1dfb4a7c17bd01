#include "attn/cli/view_options.h"

namespace attn {

Option view_option(std::string& target, const std::string& help) {
  const auto is_picture = [](const std::string& word) {
    return find_render_format(word).has_value();
  };
  Option option = optional_value("--view", target, "-", "[=FILE]", help, is_picture);
  std::get<OptionalValue>(option.value).may_be_next_word = true;
  return option;
}

std::vector<Option> terminal_options(RenderStyle& style) {
  return {word("--color", style.colour, {"auto", "always", "never"},
               "use colours on the terminal: auto, always or never"),
          integer("--width", style.width, {20, 1000}, "N",
                  "width in columns; default: that of the terminal")};
}

}  // namespace attn
