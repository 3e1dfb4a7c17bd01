// Where the result of a computation goes: files, text or data on standard output.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/text_options.h"
#include "attn/io/output_policy.h"
#include "attn/job/job.h"
#include "attn/result/output_target.h"

namespace attn {

/// What was typed.
struct ShowArgs {
  std::vector<std::string> outputs;  ///< -o
  std::string format;                ///< "" is text
  bool force = false;
  TextArgs text;
};

/// What was typed, understood.
struct Destination {
  std::vector<OutputTarget> targets;  ///< standard output, too, where it holds a file's format
  bool shown = false;                 ///< text or ndjson on standard output
  bool on_stdout = false;             ///< either of these
  bool has_file() const;              ///< anything beside standard output
};

/// `names` are the outputs that there are; `by_default` says whether standard output is meant when
/// there is no -o. Errors: usage.
Destination destination_of(const ShowArgs& args, const std::vector<std::string>& names,
                           bool by_default = true);

/// Adds -o, --format, --force and the options of text. `destination` understands what was given.
void add_show_options(Command& command, ShowArgs& args, std::function<Destination()> destination);

/// What the writer of a result may do to what stands there.
OutputPolicy policy_of(const ShowArgs& args, const TensorFiles& files);

/// Writes text or ndjson to standard output. Text is "scores (4, 4): raw similarity Q K^T", then
/// the array as NumPy prints it; `what` gives the words after the colon, or "".
void show(const Result& result, const ShowArgs& args,
          const std::function<std::string(const std::string& name)>& what);

}  // namespace attn
