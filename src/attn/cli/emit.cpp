#include "attn/cli/emit.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/cli/idle.h"
#include "attn/cli/values.h"
#include "attn/io/csv.h"
#include "attn/io/descriptor.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/output_file.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

/// Whether no suffix says what goes there, and --format does.
bool unsaid(const EmitArgs& args) {
  return is_stream(args.output) && !format_of_suffix(args.output);
}

/// The format of what was typed; nothing: text.
std::optional<Format> format_of(const EmitArgs& args) {
  if (unsaid(args)) return format_of_suffix("." + args.format);
  refuse_idle({{"--format", args.format_option->count() > 0}},
              "standard output; a file's suffix says it");
  const auto format = format_of_suffix(args.output);
  if (!format)
    throw Error(ErrorKind::usage,
                "-o " + printable(args.output) + ": expected a name that ends in " + kSuffixes);
  return format;
}

void refuse_text_options(const EmitArgs& args) {
  for (const CLI::Option* option : args.text_only)
    refuse_idle({{option->get_name().c_str(), option->count() > 0}},
                "text on standard output only");
}

PrintOptions print_options(const EmitArgs& args) {
  using enum PrintOptions::FloatMode;
  PrintOptions options = args.print;
  options.floatmode = args.floatmode == "fixed"     ? fixed
                      : args.floatmode == "unique"  ? unique
                      : args.floatmode == "maxprec" ? maxprec
                                                    : maxprec_equal;
  return options;
}

const Tensor& only(const TensorMap& tensors, const OutputFile& out) {
  if (tensors.size() != 1)
    throw Error(ErrorKind::usage, printable(out.path()) + ": holds one tensor, found " +
                                      std::to_string(tensors.size()) +
                                      "; use .npz, .safetensors or .json");
  return tensors.begin()->second;
}

std::string as_text(const TensorMap& tensors, const EmitArgs& args) {
  const PrintOptions options = print_options(args);
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    if (!text.empty()) text += "\n";
    if (!name.empty()) text += printable(name) + ":\n";
    text += (args.repr ? numpy_repr(tensor, options) : numpy_str(tensor, options)) + "\n";
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
      return out.write(as_json(tensors));
    case Format::csv:
      return out.write(to_csv(only(tensors, out), printable(out.path())));
  }
}

}  // namespace

void add_emit_options(CLI::App& app, EmitArgs& args) {
  app.add_option("-o,--output", args.output,
                 std::string("FILE ending in ") + kSuffixes + "; default: stdout")
      ->type_name("FILE");
  app.add_flag("--force", args.force, "replace FILE where it exists");
  CLI::Option* format = app.add_option("--format", args.format,
                                       "on stdout: text, json, csv, npz, npy or safetensors");
  args.format_option = format;
  format->check(one_of({"text", "json", "csv", "npz", "npy", "safetensors"}))->type_name("WORD");
  const auto text_only = [&](CLI::Option* option, const std::string& type) {
    args.text_only.push_back(option);
    return option->group("Text, as numpy.set_printoptions")->type_name(type);
  };
  text_only(app.add_flag("--repr", args.repr, "as repr() prints it: array([...])"), "");
  const auto count = [&](const std::string& flag, auto& place, const std::string& what, int least,
                         int most = std::numeric_limits<int>::max()) {
    take_whole(text_only(app.add_option(flag, place, what), "N"), least, most);
  };
  count("--precision", args.print.precision, "digits after the point; default: 8", 0,
        1100);  // 1074 digits write any float64 in full
  count("--threshold", args.print.threshold,
        "arrays of more elements are summarised; default: 1000", 0);
  count("--edgeitems", args.print.edgeitems,
        "elements at each end of a summarised axis; default: 3", 0);
  count("--linewidth", args.print.linewidth, "characters a line may have; default: 75", 1);
  text_only(app.add_flag("--suppress", args.print.suppress, "no e-notation for small numbers"), "");
  text_only(app.add_option("--floatmode", args.floatmode,
                           "fixed, unique, maxprec (default) or maxprec_equal"),
            "WORD")
      ->check(one_of({"fixed", "unique", "maxprec", "maxprec_equal"}));
}

bool holds_one(const EmitArgs& args) {
  const auto format = format_of(args);
  return format == Format::npy || format == Format::csv;
}

void emit_tensors(const TensorMap& tensors, const EmitArgs& args, const TensorFiles& files) {
  const std::optional<Format> format = format_of(args);
  if (format) refuse_text_options(args);
  if (args.output == "-") refuse_idle({{"--force", args.force}}, "-o FILE");
  OutputFile out(args.output, {.force = args.force, .inputs = files.paths()});
  if (format)
    write(tensors, *format, args, out);
  else
    out.write(as_text(tensors, args));
  files.require_unchanged();
  out.commit();
}

}  // namespace attn
