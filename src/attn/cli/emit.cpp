#include "attn/cli/emit.h"

#include <limits>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/terminal.h"
#include "attn/io/format.h"
#include "attn/io/open_file.h"
#include "attn/io/staged_file.h"

namespace attn {
namespace {

/// Whether --format sets the format: if the output is standard output, without a suffix.
bool uses_format_option(const EmitArgs& args) {
  return is_stream(args.output) && format_of_suffix(args.output) == nullptr;
}

/// nullptr for text.
const FormatRow* format_of(const EmitArgs& args) {
  if (uses_format_option(args)) return format_named(args.format);
  const FormatRow* format = format_of_suffix(args.output);
  if (format == nullptr)
    fail_usage("-o " + printable(args.output) + ": expected a name that ends in " +
               listed_suffixes() + (args.pictures ? std::string(", or ") + args.pictures : ""));
  return format;
}

void require_one(const TensorMap& tensors, const OutputFile& out) {
  if (tensors.size() != 1)
    fail_usage(printable(out.path()) + ": this format holds one tensor, found " +
               std::to_string(tensors.size()) + "; use " +
               listed_suffixes(&FormatRow::holds_several));
}

std::string as_text(const TensorMap& tensors, const EmitArgs& args) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    if (!text.empty()) text += "\n";
    if (!name.empty()) text += printable(name) + ":\n";
    text += format_tensor(tensor, args.text) + "\n";
  }
  return text;
}

TensorMap with_names(const TensorMap& tensors, const std::string& alone) {
  TensorMap named;
  for (const auto& [name, tensor] : tensors) named.set(name.empty() ? alone : name, tensor);
  return named;
}

void write(const TensorMap& tensors, const FormatRow& format, const EmitArgs& args,
           OutputFile& out) {
  if (format.holds_one()) require_one(tensors, out);
  const bool needs_names = format.is_archive() || (format.is_document() && args.is_result);
  write_tensors(format, needs_names ? with_names(tensors, args.alone) : tensors, {}, out);
}

}  // namespace

void add_emit_options(Command& command, EmitArgs& args) {
  command.add({common(text("-o,--output", args.output, "FILE",
                           "output file ending in " + listed_suffixes() + "; default: stdout")),
               common(flag("--force", args.force, "overwrite FILE if it exists")),
               common(word("--format", args.format, format_names({"text"}),
                           "format on stdout: text, " + listed_names()))});
  std::vector<Option> text_flags = text_options(args.text);
  const std::vector<std::string> text_names = names_of(text_flags);
  command.add(std::move(text_flags));
  command.requirements.push_back({{"--format"},
                                  "standard output; a file's suffix sets its format",
                                  [&args] { return uses_format_option(args); }});
  command.requirements.push_back({text_names, "text on standard output", [&args] {
                                    return uses_format_option(args) && args.format == "text";
                                  }});
  command.requirements.push_back({{"--force"}, "-o FILE", [&args] { return args.output != "-"; }});
}

bool holds_one(const EmitArgs& args) {
  const FormatRow* format = format_of(args);
  return format != nullptr && format->holds_one();
}

void emit_tensors(const TensorMap& tensors, const EmitArgs& args) {
  const FormatRow* format = format_of(args);
  if (format != nullptr && args.output == "-") refuse_binary_on_terminal(*format);
  OutputFile out(args.output, {.force = args.force});
  if (format != nullptr)
    write(tensors, *format, args, out);
  else
    write_lines(out, as_text(tensors, args));
  out.commit();
}

}  // namespace attn
