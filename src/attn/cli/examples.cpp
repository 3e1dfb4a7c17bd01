#include "attn/cli/examples.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/terminal.h"
#include "attn/examples/check.h"
#include "attn/examples/evaluate.h"
#include "attn/examples/example.h"

namespace attn {
namespace {

struct ExampleArgs {
  std::string data;
  std::vector<std::string> names;
  bool all = false;
  bool cells = false;
};

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::size_t widest(const std::vector<std::string>& names) {
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  return width;
}

std::string path_of(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

/// The examples to use: those named, which must exist, or all of them.
std::vector<std::string> chosen(const ExampleArgs& args, const std::string& folder) {
  const auto known = example_names(folder);
  for (const std::string& name : args.names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::usage, "unknown example '" + printable(name) + "'" +
                                        did_you_mean(name, known) + "; see 'attn examples list'");
  return args.names.empty() ? known : args.names;
}

int list_examples(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = example_names(folder);
  const std::size_t width = widest(names);
  for (const std::string& name : names) {
    const Example example = read_example(path_of(folder, name));
    print(padded(name, width) + "  " + example.title + " [" + example.source + "]\n");
  }
  return 0;
}

/// Prints only what the notebook printed; with --cells, a line "# In [20]" before each cell.
int run_examples(const ExampleArgs& args) {
  if (args.names.empty() == !args.all)
    throw Error(ErrorKind::usage, "expected names of examples, or --all");
  const std::string folder = examples_folder(args.data);
  std::string between;
  for (const std::string& name : chosen(args, folder)) {
    const Example example = read_example(path_of(folder, name));
    const Evaluation evaluation = evaluate(example);
    print(between + text_of(evaluation, args.cells ? CellLabels::shown : CellLabels::hidden));
    between = "\n";
  }
  return 0;
}

int check(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = chosen(args, folder);
  bool agree = true;
  for (const std::string& name : names) {
    const CheckResult result = check_example(path_of(folder, name));
    print((result.passed ? "ok    " : "FAIL  ") + padded(name, widest(names)) + "  " +
          result.summary + "\n");
    agree = agree && result.passed;
  }
  return agree ? 0 : 1;
}

}  // namespace

Command examples_command() {
  const auto args = std::make_shared<ExampleArgs>();
  Command list_command, run_command, check_command;
  list_command.name = "list";
  list_command.summary = "print name, title and source of each example (default)";
  list_command.description = "Prints the name, title and source of each example.";
  list_command.example = "  attn examples list";
  list_command.action = [args] { return list_examples(*args); };

  run_command.name = "run";
  run_command.summary = "compute examples and print what their notebooks print";
  run_command.description = "Computes examples and prints what their notebooks print.";
  run_command.example = "  attn examples run general-attention --cells";
  run_command.options = {
      positional("NAME", args->names, "names of examples"),
      flag("--all", args->all, "run all examples"),
      flag("--cells", args->cells, "print '# In [20]' before the output of each cell")};
  run_command.action = [args] { return run_examples(*args); };

  check_command.name = "check";
  check_command.summary =
      "compute examples and compare with the expected output; exit 1 if any differ";
  check_command.description =
      "Computes examples and compares them with the expected output. The exit code is 1 if any "
      "differ.";
  check_command.example = "  attn examples check encoder-decoder head-split";
  check_command.options = {positional("NAME", args->names, "names of examples")};
  check_command.action = [args] { return check(*args); };

  Command command;
  command.description = "Lists, runs and checks the worked examples that are installed with attn.";
  command.example =
      "  attn examples list\n"
      "  attn examples run general-attention\n"
      "  attn examples check";
  command.add(text("--data", args->data, "DIR",
                   "folder of the examples; default: $ATTN_DATA, or the installed ones"));
  command.subcommands = {list_command, run_command, check_command};
  command.action = list_command.action;
  return command;
}

}  // namespace attn
