// Tensors of a subcommand, as a file or on standard output.
#pragma once

#include <string>

#include "attn/cli/command.h"
#include "attn/cli/text_options.h"
#include "attn/io/tensor_file.h"

namespace attn {

/// Where they go and how they look, as typed.
struct EmitArgs {
  std::string output = "-";     ///< -o; "-": standard output
  std::string format = "text";  ///< on standard output
  bool force = false;
  TextArgs text;
  std::string alone = "arr_0";  ///< what an .npz calls a nameless tensor (numpy.savez's default)
};

/// Adds -o, --force, --format, --repr and NumPy's print options.
void add_emit_options(Command& command, EmitArgs& args);

/// Whether what was typed leads to a format that holds one tensor only (.npy, CSV).
bool holds_one(const EmitArgs& args);

/// A tensor without a name ("") stands alone: a JSON array, an .npy, text without a label. Named
/// ones are a JSON object, members of an .npz, text under "NAME:" with an empty line between.
/// `files` are what was read: writing onto one of them is refused. Errors: usage when the format
/// holds one tensor and there are several, or for an unknown suffix; those of OutputFile.
void emit_tensors(const TensorMap& tensors, const EmitArgs& args, const TensorFiles& files);

}  // namespace attn
