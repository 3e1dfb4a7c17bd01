// Writes the tensors of a command to a file or to standard output.
#pragma once

#include <string>

#include "attn/cli/command.h"
#include "attn/cli/shared_options.h"
#include "attn/io/tensor_file.h"

namespace attn {

struct EmitArgs {
  std::string output = "-";     ///< -o; "-": standard output
  std::string format = "text";  ///< on standard output
  bool force = false;
  TextArgs text;
  std::string alone =
      "arr_0";             ///< the name of an unnamed tensor in an .npz (numpy.savez's default)
  bool is_result = false;  ///< `alone` is the name of an output, also in JSON
  const char* pictures =
      nullptr;  ///< suffixes of pictures, if the command draws them, for messages
};

/// Adds -o, --force, --format and the options of text.
void add_emit_options(Command& command, EmitArgs& args);

/// Whether the output format holds only one tensor (.npy, CSV).
bool holds_one(const EmitArgs& args);

/// An unnamed tensor ("") becomes a JSON array (of a result, an object), an .npy or text without a
/// label. Named tensors become a JSON object, members of an .npz or text with headings "NAME:".
/// Errors: usage, for an unknown suffix, or if the format holds one tensor and there are several;
/// those of OutputFile.
void emit_tensors(const TensorMap& tensors, const EmitArgs& args);

}  // namespace attn
