#include "attn/cli/show.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/cli/terminal.h"
#include "attn/io/open_file.h"
#include "attn/run/result_writer.h"

namespace attn {
namespace {

bool is_text(const ShowArgs& args) { return args.format.empty() || args.format == "text"; }

bool is_stdout(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

bool takes_format(const OutputTarget& target) {
  return target.format != nullptr && format_of_suffix(target.path) == nullptr &&
         is_stream(target.path);
}

/// Refuses "weights=w.npy,context=c.npy", which would otherwise be one file name.
void refuse_list(const std::string& typed, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (typed.find("," + name + "=") != std::string::npos)
      fail_usage("-o " + printable(typed) + ": expected one NAME=FILE; repeat -o for each output");
}

}  // namespace

void add_show_options(Command& command, ShowArgs& args,
                      const std::function<Destination()>& destination,
                      const std::function<bool()>& explains) {
  command.add(in_group(
      "Results",
      {common(
           list("-o,--output", args.outputs, "[NAME=]PATH",
                "output file ending in " + listed_suffixes() +
                    "; FOLDER/; or NAME=FILE for one output; repeatable; default: text on stdout")),
       common(word("--format", args.format, format_names({"text", "ndjson"}),
                   "format on stdout: text, ndjson, " + listed_names())),
       common(flag("--force", args.force, "overwrite existing output files"))}));
  std::vector<Option> text = text_options(args.text);
  std::vector<std::string> others = names_of(text);
  std::erase(others, "--precision");
  command.add(std::move(text));
  const auto shows_text = [&args, destination] { return destination().shown && is_text(args); };
  const std::string companion = "text on standard output";
  command.requirements.push_back(
      {{"--precision"}, companion, [shows_text, explains] { return explains() || shows_text(); }});
  command.requirements.push_back({others, companion, shows_text});
}

bool Destination::has_file() const {
  return std::any_of(targets.begin(), targets.end(),
                     [](const OutputTarget& target) { return target.path != "-"; });
}

Destination destination_of(const ShowArgs& args, const std::vector<std::string>& names,
                           bool by_default) {
  const FormatRow* stream = format_named(args.format);
  Destination destination;
  destination.on_stdout = args.outputs.empty() && by_default;
  bool format_used = false;
  for (const std::string& typed : args.outputs) {
    if (is_stdout(typed)) {
      destination.on_stdout = true;
      continue;
    }
    refuse_list(typed, names);
    destination.targets.push_back(parse_target(typed, names, stream));
    format_used = format_used || takes_format(destination.targets.back());
  }
  // Last, so that nothing is printed before all files are written.
  if (destination.on_stdout && stream != nullptr) destination.targets.push_back({"", "-", stream});
  destination.shown = destination.on_stdout && stream == nullptr;
  if (destination.on_stdout && stream != nullptr) refuse_binary_on_terminal(*stream);
  if (!destination.on_stdout && !format_used && !args.format.empty())
    fail_usage("--format requires standard output; a file's suffix sets its format");
  return destination;
}

void show(const Result& result, const ShowArgs& args,
          const std::function<std::string(const std::string& name, const Tensor& tensor)>& what) {
  if (!is_text(args)) return print_data(result_json(result, -1) + "\n");
  std::string text;
  for (const auto& [name, tensor] : result.outputs) {
    text += (text.empty() ? "" : "\n") + name + " " + to_string(tensor.shape());
    if (const std::string words = what(name, tensor); !words.empty()) text += ": " + words;
    text += "\n" + format_tensor(tensor, args.text) + "\n";
  }
  print(text);
}

}  // namespace attn
