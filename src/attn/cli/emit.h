// Tensors of a subcommand, as a file or on standard output.
#pragma once

#include <string>

#include "attn/io/tensor_file.h"
#include "attn/report/numpy_text.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn {

/// Where they go and how they look, as typed.
struct EmitArgs {
  std::string output = "-";     ///< -o; "-": standard output
  std::string format = "text";  ///< on standard output
  std::string floatmode = "maxprec";
  bool force = false, repr = false;
  PrintOptions print;
  std::string alone = "arr_0";  ///< what an .npz calls a nameless tensor (numpy.savez's default)
  std::vector<const CLI::Option*> text_only;  ///< options that shape text and nothing else
  const CLI::Option* format_option = nullptr;
};

/// Declares -o, --force, --format, --repr and NumPy's print options.
void add_emit_options(CLI::App& app, EmitArgs& args);

/// Whether what was typed leads to a format that holds one tensor only (.npy, CSV).
bool holds_one(const EmitArgs& args);

/// A tensor without a name ("") stands alone: a JSON array, an .npy, text without a label. Named
/// ones are a JSON object, members of an .npz, text under "NAME:" with an empty line between.
/// `files` are what was read: writing onto one of them is refused. Errors: usage when the format
/// holds one tensor and there are several, for an unknown suffix, or for an option of text beside
/// another format; those of OutputFile.
void emit_tensors(const TensorMap& tensors, const EmitArgs& args, const TensorFiles& files);

}  // namespace attn
