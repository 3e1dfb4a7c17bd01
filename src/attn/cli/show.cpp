#include "attn/cli/show.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/cli/message.h"
#include "attn/io/descriptor.h"
#include "attn/report/numpy_text.h"
#include "attn/result/result_format.h"

namespace attn {
namespace {

bool is_text(const ShowArgs& args) { return args.format.empty() || args.format == "text"; }

bool is_stdout(const std::string& typed) { return typed == "-" || typed == "/dev/stdout"; }

bool takes_format(const OutputTarget& target) {
  return target.format && !format_of_suffix(target.path) && is_stream(target.path);
}

}  // namespace

std::vector<Option> show_options(ShowArgs& args) {
  return in_group(
      "Results",
      {list("-o,--output", args.outputs, "[NAME=]PATH",
            "output file ending in .npz, .safetensors, .json, .npy or .csv; FOLDER/; or NAME=FILE "
            "for one output; repeatable; default: text on stdout"),
       word("--format", args.format, {"text", "json", "ndjson", "csv", "npz", "npy", "safetensors"},
            "format on stdout: text, json, ndjson, csv, npz, npy or safetensors"),
       flag("--repr", args.repr, "print text as repr() does: array([...])"),
       flag("--force", args.force, "overwrite existing output files")});
}

bool Destination::has_file() const {
  return std::any_of(targets.begin(), targets.end(),
                     [](const OutputTarget& target) { return target.path != "-"; });
}

Destination destination_of(const ShowArgs& args, const std::vector<std::string>& names,
                           bool by_default) {
  const std::optional<Format> stream = format_of_suffix("." + args.format);
  Destination destination;
  destination.on_stdout = args.outputs.empty() && by_default;
  bool format_used = false;
  for (const std::string& typed : args.outputs) {
    if (is_stdout(typed)) {
      destination.on_stdout = true;
      continue;
    }
    destination.targets.push_back(parse_target(typed, names, stream));
    format_used = format_used || takes_format(destination.targets.back());
  }
  // Last, so that it says nothing before the files are known to be written.
  if (destination.on_stdout && stream) destination.targets.push_back({"", "-", stream});
  destination.shown = destination.on_stdout && !stream;
  if (!destination.on_stdout && !format_used && !args.format.empty())
    throw Error(ErrorKind::usage,
                "--format requires standard output; a file's suffix sets its format");
  if ((!destination.on_stdout || !is_text(args)) && args.repr)
    throw Error(ErrorKind::usage, "--repr requires text on standard output");
  return destination;
}

OutputPolicy policy_of(const ShowArgs& args, const TensorFiles& files) {
  return {.force = args.force, .inputs = files.paths()};
}

void show(const Result& result, const ShowArgs& args,
          const std::function<std::string(const std::string& name)>& what) {
  if (!is_text(args)) return print(result_json(result, -1) + "\n");
  std::string text;
  for (const auto& [name, tensor] : result.outputs) {
    text += (text.empty() ? "" : "\n") + name + " " + to_string(tensor.shape());
    if (const std::string words = what(name); !words.empty()) text += ": " + words;
    text += "\n" + (args.repr ? numpy_repr(tensor) : numpy_str(tensor)) + "\n";
  }
  print(text);
}

}  // namespace attn
