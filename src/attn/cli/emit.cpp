#include "attn/cli/emit.h"

#include <CLI/CLI.hpp>

#include "attn/io/csv.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

const Tensor& only(const TensorMap& tensors, const std::string& where) {
  if (tensors.size() != 1)
    throw Error(ErrorKind::usage, where + ": holds one tensor, found " +
                                      std::to_string(tensors.size()) + "; use .npz or .json");
  return tensors.begin()->second;
}

std::string as_json(const TensorMap& tensors) {
  if (tensors.size() == 1) return to_json(tensors.begin()->second, 0) + "\n";
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += (text.empty() ? "{\n  " : ",\n  ") + json_quoted(name) + ": " + to_json(tensor, 2);
  return text.empty() ? "{}\n" : text + "\n}\n";
}

std::string as_text(const TensorMap& tensors, const Emit& emit) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    if (tensors.size() > 1) text += (text.empty() ? "" : "\n") + printable(name) + ":\n";
    text += (emit.repr ? numpy_repr(tensor, emit.print) : numpy_str(tensor, emit.print)) + "\n";
  }
  return text;
}

Format format_of_output(const Emit& emit) {
  const auto format = format_of_suffix(emit.output);
  if (!format)
    throw Error(ErrorKind::usage, "-o " + printable(emit.output) +
                                      ": expected a name that ends in .npz, .npy, .json or .csv");
  return *format;
}

void write(const TensorMap& tensors, Format format, OutputFile& out) {
  switch (format) {
    case Format::npy:
      return write_npy(only(tensors, out.path()), out);
    case Format::npz:
      return write_npz(tensors, "", out);
    case Format::json:
      return out.write(as_json(tensors));
    case Format::csv:
      return out.write(to_csv(only(tensors, out.path()), out.path()));
  }
}

}  // namespace

void add_emit_options(CLI::App& app, Emit& emit) {
  app.add_option("-o,--output", emit.output, "FILE.npz, .npy, .json or .csv; default: stdout")
      ->type_name("FILE");
  app.add_flag("--force", emit.force, "replace FILE where it exists");
  app.add_option("--format", emit.format, "on stdout: text, json, csv, npz or npy")
      ->check(CLI::IsMember({"text", "json", "csv", "npz", "npy"}))
      ->type_name("WORD");
  app.add_flag("--repr", emit.repr, "text as repr(): array([...])");
}

void emit_tensors(const TensorMap& tensors, const Emit& emit, const TensorFiles& files) {
  const bool to_stdout = emit.output.empty() || emit.output == "-";
  if (emit.repr && (!to_stdout || emit.format != "text"))
    throw Error(ErrorKind::usage, "--repr goes with text on standard output only");
  OutputPolicy policy{emit.force, {}};
  for (const auto& [path, file] : files.files()) policy.inputs.insert(path);
  OutputFile out(to_stdout ? "-" : emit.output, policy);
  if (!to_stdout)
    write(tensors, format_of_output(emit), out);
  else if (emit.format == "text")
    out.write(as_text(tensors, emit));
  else
    write(tensors, *format_of_suffix("." + emit.format), out);
  out.commit();
}

}  // namespace attn
