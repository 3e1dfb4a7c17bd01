// attn examples: the worked examples that ship with the program.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/cli/command.h"
#include "attn/examples/check.h"
#include "attn/examples/evaluate.h"
#include "attn/examples/example.h"
#include "attn/examples/folder.h"

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

/// The names asked for, each of them known; all there are when none was.
std::vector<std::string> chosen(const ExampleArgs& args, const std::string& folder) {
  const auto known = example_names(folder);
  for (const std::string& name : args.names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::usage, "unknown example '" + printable(name) + "'" +
                                        did_you_mean(name, known) +
                                        "; 'attn examples list' names them all");
  return args.names.empty() ? known : args.names;
}

int list(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = example_names(folder);
  const std::size_t width = widest(names);
  for (const std::string& name : names) {
    const Example example = read_example(path_of(folder, name));
    print(padded(name, width) + "  " + example.title + " [" + example.source + "]\n");
  }
  return 0;
}

/// What the notebook printed, and nothing else; with --cells, a line "# In [20]" before each cell.
int run_examples(const ExampleArgs& args) {
  if (args.names.empty() == !args.all)
    throw Error(ErrorKind::usage, "expected names of examples, or --all for each of them");
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
    const Verdict verdict = check_example(path_of(folder, name));
    print((verdict.agrees ? "ok    " : "FAIL  ") + padded(name, widest(names)) + "  " +
          verdict.what + "\n");
    agree = agree && verdict.agrees;
  }
  return agree ? 0 : 1;
}

}  // namespace

Action add_examples(CLI::App& app) {
  const auto args = std::make_shared<ExampleArgs>();
  app.description(
      "The worked examples that ship with attn, as their notebooks print them.\n\n"
      "Example:\n"
      "  attn examples list\n"
      "  attn examples run general-attention\n"
      "  attn examples check");
  app.add_option("--data", args->data, "folder of the examples (also ATTN_DATA)")->type_name("DIR");
  app.require_subcommand(0, 1);
  app.fallthrough();

  app.add_subcommand("list", "name, title and source of each (the default)")
      ->fallthrough()
      ->footer("Example:\n  attn examples list");
  CLI::App* run =
      app.add_subcommand("run", "print each thing that the notebook printed, computed anew");
  CLI::App* verify =
      app.add_subcommand("check", "recompute, compare numbers and text; exit 1 where they differ");
  for (CLI::App* command : {run, verify}) {
    command->fallthrough();
    command->add_option("NAME", args->names, "which examples");
  }
  run->footer("Example:\n  attn examples run general-attention --cells");
  verify->footer("Example:\n  attn examples check encoder-decoder head-split");
  run->add_flag("--all", args->all, "every example");
  run->add_flag("--cells", args->cells, "a line '# In [20]' before what each cell prints");

  return [args, run, verify] {
    if (run->parsed()) return run_examples(*args);
    if (verify->parsed()) return check(*args);
    return list(*args);
  };
}

}  // namespace attn
