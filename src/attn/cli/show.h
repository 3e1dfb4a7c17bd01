// Options for the destination of results: files or standard output.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/shared_options.h"
#include "attn/io/staged_file.h"
#include "attn/run/output_target.h"
#include "attn/run/result.h"

namespace attn {

struct ShowArgs {
  std::vector<std::string> outputs;  ///< -o
  std::string format;                ///< "": text
  bool force = false;
  TextArgs text;
};

struct Destination {
  std::vector<OutputTarget> targets;  ///< includes standard output for json, csv, npz, ...
  bool shown = false;                 ///< text or ndjson on standard output
  bool on_stdout = false;             ///< results go to standard output
  bool has_file() const;              ///< any target is not standard output
};

/// `names` are the existing outputs. Without -o, results go to standard output if `by_default`.
/// Errors: usage.
Destination destination_of(const ShowArgs& args, const std::vector<std::string>& names,
                           bool by_default = true);

/// Adds -o, --format, --force and the options of text. `destination` returns the parsed
/// destination; `explains`, whether other text uses --precision.
void add_show_options(
    Command& command, ShowArgs& args, const std::function<Destination()>& destination,
    const std::function<bool()>& explains = [] { return false; });

/// Prints results as text or ndjson. Text is a heading "scores (4, 4): DESCRIPTION" and the array
/// as NumPy prints it. `what` returns the description, or "".
void show(const Result& result, const ShowArgs& args,
          const std::function<std::string(const std::string& name, const Tensor& tensor)>& what);

}  // namespace attn
