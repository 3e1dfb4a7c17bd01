#include "attn/cli/emit.h"

#include <limits>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/terminal.h"
#include "attn/core/plan.h"
#include "attn/io/csv.h"
#include "attn/io/json_write.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/open_file.h"
#include "attn/io/safetensors.h"
#include "attn/io/staged_file.h"

namespace attn {
namespace {

/// Whether --format sets the format: if the output is standard output, without a suffix.
bool uses_format_option(const EmitArgs& args) {
  return is_stream(args.output) && !format_of_suffix(args.output);
}

/// Empty for text.
std::optional<Format> format_of(const EmitArgs& args) {
  if (uses_format_option(args)) return format_of_suffix("." + args.format);
  const auto format = format_of_suffix(args.output);
  if (!format)
    throw Error(ErrorKind::usage,
                "-o " + printable(args.output) + ": expected a name that ends in " + kSuffixes);
  return format;
}

const Tensor& only(const TensorMap& tensors, const OutputFile& out) {
  if (tensors.size() != 1)
    throw Error(ErrorKind::usage, printable(out.path()) + ": this format holds one tensor, found " +
                                      std::to_string(tensors.size()) +
                                      "; use .npz, .safetensors or .json");
  return tensors.begin()->second;
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

std::string as_json(const TensorMap& tensors) {
  if (const Tensor* alone = tensors.find("")) return to_json(*alone, 2) + "\n";
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += (text.empty() ? "{\n  " : ",\n  ") + json_quoted(name) + ": " + to_json(tensor, 4);
  return text.empty() ? "{}\n" : text + "\n}\n";
}

TensorMap with_names(const TensorMap& tensors, const std::string& alone) {
  TensorMap named;
  for (const auto& [name, tensor] : tensors) named.set(name.empty() ? alone : name, tensor);
  return named;
}

void write(const TensorMap& tensors, Format format, const EmitArgs& args, OutputFile& out) {
  switch (format) {
    case Format::npy:
      return write_npy(only(tensors, out), out);
    case Format::npz:
      return write_npz(with_names(tensors, args.alone), "", out);
    case Format::safetensors:
      return write_safetensors(with_names(tensors, args.alone), {}, out);
    case Format::json:
      return out.write(as_json(args.is_result ? with_names(tensors, args.alone) : tensors));
    case Format::csv:
      return out.write(to_csv(only(tensors, out), out.path()));
  }
}

}  // namespace

void add_emit_options(Command& command, EmitArgs& args) {
  command.add(
      {common(text("-o,--output", args.output, "FILE",
                   std::string("output file ending in ") + kSuffixes + "; default: stdout")),
       common(flag("--force", args.force, "overwrite FILE if it exists")),
       common(word("--format", args.format, {"text", "json", "csv", "npz", "npy", "safetensors"},
                   "format on stdout: text, json, csv, npz, npy or safetensors"))});
  command.add(text_options(args.text));
  command.requirements.push_back({{"--format"},
                                  "standard output; a file's suffix sets its format",
                                  [&args] { return uses_format_option(args); }});
  command.requirements.push_back({text_option_names(), "text on standard output", [&args] {
                                    return uses_format_option(args) && args.format == "text";
                                  }});
  command.requirements.push_back({{"--force"}, "-o FILE", [&args] { return args.output != "-"; }});
}

bool holds_one(const EmitArgs& args) {
  const auto format = format_of(args);
  return format == Format::npy || format == Format::csv;
}

void emit_tensors(const TensorMap& tensors, const EmitArgs& args) {
  const std::optional<Format> format = format_of(args);
  if (format && args.output == "-") refuse_binary_on_terminal(*format);
  OutputFile out(args.output, {.force = args.force});
  if (format)
    write(tensors, *format, args, out);
  else
    write_lines(out, as_text(tensors, args));
  out.commit();
}

}  // namespace attn
