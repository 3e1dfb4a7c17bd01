#include "attn/cli/shared_options.h"

#include <algorithm>
#include <limits>

#include "attn/base/memory_limit.h"
#include "attn/cli/executor.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"
#include "attn/job/job.h"
#include "attn/print/tensor_text.h"

namespace attn {

void add_limit_options(Command& command, LimitArgs& args) {
  command.add(in_group("Limits", {text("--max-memory", args.max_memory, "SIZE",
                                       "limit on memory; default: 90% of the available memory")}));
  command.add(in_group("Limits", {text("--max-expand", args.max_expand, "SIZE",
                                       "limit on the size of a decompressed file; default: 8G, and "
                                       "above 64M at most 2000 times the compressed size")}));
}

namespace {

void apply_expand(const LimitArgs& args, ReadLimits& limits) {
  if (args.max_expand.empty()) return;
  limits.npz.expanded = parse_size(args.max_expand, "--max-expand");
  limits.npz.ratio = std::numeric_limits<std::size_t>::max();
}

}  // namespace

ReadLimits limits_of(const LimitArgs& args, const Executor& executor) {
  ReadLimits limits;
  limits.memory = args.max_memory.empty() ? default_memory() / executor.share().processes
                                          : parse_size(args.max_memory, "--max-memory");
  // Libraries for communication allocate what they need.
  if (executor.share().is_alone) limit_memory(limits.memory, !args.max_memory.empty());
  apply_expand(args, limits);
  limits.npz.expanded = std::min(limits.npz.expanded, limits.memory);
  return limits;
}

ReadLimits reading_limits(const LimitArgs& args, FileAccess access) {
  ReadLimits limits = limits_of(args, local_executor());
  limits.access = access;
  if (access == FileAccess::map && args.max_memory.empty()) limits.memory = ReadLimits{}.memory;
  return limits;
}

namespace {

/// The flag of a key of print_options.
Option print_option(TextArgs& args, const Field& field) {
  const auto store = [&args, key = field.key, flag = field.flag](Json value) {
    args.flags.set({key, std::move(value), flag, "", true});
  };
  if (field.type == FieldType::integer)
    return integer(
        field.flag, [store](std::int64_t number) { store(Json{number}); }, {*field.min, *field.max},
        std::string(field.placeholder), std::string(field.help));
  if (field.type == FieldType::boolean)
    return flag(
        field.flag, [store](bool on) { store(Json{on}); }, std::string(field.help));
  if (field.type == FieldType::text)
    return text(field.flag,
                Store<std::string>([store](const std::string& word) { store(Json{word}); }),
                std::string(field.placeholder), std::string(field.help));
  std::string unused;
  Option option = word(field.flag, unused, field.words, std::string(field.help));
  std::get<WordValue>(option.value).store = [store, words = field.words](std::size_t index) {
    store(Json{words[index]});
  };
  return option;
}

}  // namespace

std::vector<Option> text_options(TextArgs& args) {
  std::vector<Option> options;
  options.push_back(flag("--repr", args.repr, "print as repr() does: array([...])"));
  for (const Field& field : print_option_fields()) options.push_back(print_option(args, field));
  return in_group("Text, as with set_printoptions of NumPy and PyTorch", std::move(options));
}

PrintOptions print_options_of(const TextArgs& args) {
  return print_options_of(args.settings, args.flags);
}

std::string format_tensor(const Tensor& tensor, const TextArgs& args) {
  const PrintOptions options = print_options_of(args);
  return args.repr ? repr_text(tensor, options) : str_text(tensor, options);
}

Option progress_option(ProgressStyle& style) {
  return word("--progress", style,
              {{"auto", ProgressStyle::automatic},
               {"plain", ProgressStyle::plain},
               {"none", ProgressStyle::none}},
              "auto (a bar on a terminal), plain (lines) or none");
}

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

std::vector<Option> picture_style_options(RenderStyle& style) {
  PictureStyle& picture = style.picture;
  const auto store_page_size = [&bytes = style.max_html_bytes](const std::string& text) {
    bytes = parse_size(text, "--max-html-bytes");
  };
  return {
      text("--max-html-bytes", Store<std::string>(store_page_size), "SIZE",
           "limit on the size of a page, such as 20M; values are stored less precisely if needed; "
           "default: 50000000"),
      flag("--dark", picture.dark, "dark background, for .svg, .pdf and .png"),
      integer("--size", picture.width, {50, 20'000}, "N",
              "width of an .svg, .pdf or .png, in pixels of 1/96 inch; default: as needed"),
      integer("--dpi", picture.dpi, {24, 1200}, "N", "pixels per inch of a .png; default: 192")};
}

void add_picture_requirements(Command& command, const std::string& output,
                              const std::string& flag) {
  const auto is_png = [&output] { return output.ends_with(".png"); };
  const auto is_picture = [&output, is_png] {
    return is_png() || output.ends_with(".svg") || output.ends_with(".pdf");
  };
  command.requirements.push_back(
      {{"--dark", "--size"}, flag + "FILE.svg, .pdf or .png", is_picture});
  command.requirements.push_back({{"--dpi"}, flag + "FILE.png", is_png});
  command.requirements.push_back(
      {{"--max-html-bytes"}, flag + "FILE.html", [&output] { return output.ends_with(".html"); }});
}

std::vector<Option> panel_options(HeatChoice& choice) {
  return {text("--head", choice.head, "LIST",
               "draw only these heads, such as 0,3 or 0:4; default: all, side by side"),
          text("--batch", choice.batch, "LIST", "draw only these items of the batch"),
          text("--layer", choice.layer, "LIST",
               "draw only these layers, by their numbers in the model if the file has them")};
}

}  // namespace attn
