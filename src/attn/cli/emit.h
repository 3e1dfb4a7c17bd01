// Tensors of a subcommand, as a file or on standard output.
#pragma once

#include <string>

#include "attn/io/tensor_file.h"
#include "attn/report/numpy_text.h"

namespace CLI {
class App;
}

namespace attn {

/// Where they go and how they look, as typed.
struct Emit {
  std::string output;           ///< -o; "" or "-": standard output
  std::string format = "text";  ///< on standard output
  bool force = false, repr = false;
  PrintOptions print;
};

/// Declares -o, --force, --format and --repr.
void add_emit_options(CLI::App& app, Emit& emit);

/// One tensor alone, or several by name (text: each under a line "NAME:"; JSON: an object). `files`
/// are what was read: writing onto one of them is refused. Errors: usage when the format holds one
/// tensor and there are several; those of OutputFile.
void emit_tensors(const TensorMap& tensors, const Emit& emit, const TensorFiles& files);

}  // namespace attn
