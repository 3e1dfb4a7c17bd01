// attn examples: the worked examples that ship with the program.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/exercise.h"
#include "attn/cli/run.h"
#include "attn/cli/terminal.h"
#include "attn/examples/check.h"
#include "attn/examples/evaluate.h"
#include "attn/examples/example.h"
#include "attn/io/file.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "attn/io/tensor_file.h"

namespace attn {
namespace {

struct ExampleArgs {
  std::string data;
  std::vector<std::string> names;
  bool all = false;
  bool cells = false;
  std::string job;  ///< of views; "": all jobs
  RunViewArgs views;
  bool force = false;
  std::string name;    ///< of copy and exercise
  std::string target;  ///< of copy
  ExerciseArgs exercise;
};

std::string padded(const std::string& name, std::size_t width) {
  return left_aligned(printable(name), width);
}

std::size_t widest(const std::vector<std::string>& names) {
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, columns_of(printable(name)));
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
      fail_usage("unknown example '" + printable(name) + "'" +
                 did_you_mean(name, known, NameKind::other) + "; see 'attn examples list'");
  return args.names.empty() ? known : args.names;
}

/// "Andrej Karpathy: Let's build GPT (MIT)"
std::string source_heading(const Example& example) {
  return printable(example.source) +
         (example.licence.empty() ? "" : " (" + printable(example.licence) + ")");
}

/// Below each source, in the order of their names, its examples with two spaces before them.
int list_examples(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = example_names(folder);
  const std::size_t width = widest(names);
  std::map<std::string, std::string> groups;
  for (const std::string& name : names) {
    const Example example = read_example(path_of(folder, name));
    const std::string section =
        example.section.empty() ? "" : " [" + printable(example.section) + "]";
    groups[source_heading(example)] +=
        "  " + padded(name, width) + "  " + printable(example.title) + section + "\n";
  }
  for (const auto& [source, lines] : groups) print(source + "\n" + lines);
  return 0;
}

void append_new(std::vector<std::string>& files, const std::string& file) {
  if (!file.empty() && std::find(files.begin(), files.end(), file) == files.end())
    files.push_back(file);
}

/// The files of the example's jobs, without repetitions, relative to its folder.
std::vector<std::string> files_of_jobs(const Example& example) {
  std::vector<std::string> files;
  for (const Recipe& recipe : example.recipes)
    if (recipe.kind == Recipe::Kind::job) append_new(files, recipe.file);
  return files;
}

/// The jobs of an example that are drawn or explained: that of --job, or all. Errors: usage, if
/// there is none, or more than one and only one is wanted.
std::vector<std::string> chosen_jobs(const Example& example, const std::string& job,
                                     bool wants_one) {
  std::vector<std::string> jobs = files_of_jobs(example);
  append_new(jobs, example.view);
  if (job.empty() && !example.view.empty()) jobs = {example.view};
  if (!job.empty()) {
    if (std::find(jobs.begin(), jobs.end(), job) == jobs.end())
      fail_usage("--job: expected " + join_or(jobs) + ", found '" + printable(job) + "'");
    jobs = {job};
  }
  if (jobs.empty())
    fail_usage("the example '" + printable(example.name) + "' has no job to draw or explain");
  if (jobs.size() > 1 && wants_one)
    fail_usage("this example has " + counted(jobs.size(), "job") +
               "; choose one with --job: " + join_or(jobs));
  return jobs;
}

/// Draws or explains the jobs of one example, with a line before each if there are several.
int view_example(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = chosen(args, folder);
  if (args.all || names.size() != 1)
    fail_usage("--view and --explain require the name of one example");
  const Example example = read_example(path_of(folder, names[0]));
  const std::vector<std::string> jobs = chosen_jobs(example, args.job, args.views.has_file());
  for (const std::string& job : jobs) {
    if (jobs.size() > 1) print((job == jobs[0] ? "# " : "\n# ") + printable(job) + "\n");
    const int code = run_job_views(path_of(example.folder, job), args.views, args.force);
    if (code != 0) return code;
  }
  return 0;
}

/// Prints only what the notebook printed; with --cells, a line "# In [20]" before each cell. On a
/// terminal, the line names the values, too, and the title is above.
int run_examples(const ExampleArgs& args) {
  if (args.names.empty() == !args.all) fail_usage("expected names of examples, or --all");
  if (!args.views.empty()) return view_example(args);
  const std::string folder = examples_folder(args.data);
  const bool is_described = !args.cells && prints_to_terminal();
  const CellLabels labels = is_described ? CellLabels::with_values
                            : args.cells ? CellLabels::shown
                                         : CellLabels::hidden;
  std::string between;
  for (const std::string& name : chosen(args, folder)) {
    const Example example = read_example(path_of(folder, name));
    const Evaluation evaluation = evaluate(example);
    const std::string title = is_described ? example.title + "\n\n" : "";
    print(between + title + text_of(evaluation, labels));
    between = "\n";
  }
  return 0;
}

int write_exercise_of(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  ExampleArgs one = args;
  one.names = {args.name};
  const Example example = read_example(path_of(folder, chosen(one, folder)[0]));
  const std::string job = chosen_jobs(example, args.job, true)[0];
  write_exercise(example.name, path_of(example.folder, job), args.exercise);
  return 0;
}

/// Copies the files of an example's jobs, which are in its folder, to another folder. Their
/// relative paths stay valid.
int copy_example(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  ExampleArgs one = args;
  one.names = {args.name};
  const Example example = read_example(path_of(folder, chosen(one, folder)[0]));
  std::vector<std::string> files;
  for (const Recipe& recipe : example.recipes) {
    if (recipe.file.empty()) continue;
    append_new(files,
               recipe.kind == Recipe::Kind::job ? recipe.file : parse_tensor_ref(recipe.file).path);
  }
  append_new(files, example.view);
  ScopedDirectories folders;
  folders.make_with_parents(args.target, false);
  std::vector<std::unique_ptr<OutputFile>> copies;
  for (const std::string& file : files) {
    copies.push_back(std::make_unique<OutputFile>(path_of(args.target, file),
                                                  OutputPolicy{.force = args.force}));
    const FileBytes bytes = read_file(path_of(example.folder, file));
    copies.back()->write(bytes.text());
    copies.back()->finish();
  }
  for (const auto& copy : copies) copy->commit();
  folders.keep();
  return 0;
}

int check(const ExampleArgs& args) {
  const std::string folder = examples_folder(args.data);
  const auto names = chosen(args, folder);
  const std::size_t width = widest(names);
  bool agree = true;
  for (const std::string& name : names) {
    const CheckResult result = check_example(path_of(folder, name));
    print((result.passed ? "ok    " : "FAIL  ") + padded(name, width) + "  " +
          printable_message(result.summary) + "\n");
    agree = agree && result.passed;
  }
  return agree ? 0 : 1;
}

constexpr std::string_view kLister = "examples list";  ///< of names of examples

Command list_subcommand(const std::shared_ptr<ExampleArgs>& args) {
  Command command;
  command.name = "list";
  command.summary = "print name and title of each example, by source (default)";
  command.description =
      "Prints the name and title of each example below the source that it comes from.";
  command.example = "  attn examples list";
  command.action = [args] { return list_examples(*args); };
  return command;
}

Command run_subcommand(const std::shared_ptr<ExampleArgs>& args) {
  Command command;
  command.name = "run";
  command.summary = "compute examples and print what their notebooks print";
  command.description =
      "Computes examples and prints what their notebooks print; on a terminal, with the names of "
      "the values. With --view or --explain, draws or explains the jobs of one example instead, as "
      "'attn run' does.";
  command.example =
      "  attn examples run general-attention --cells\n"
      "  attn examples run general-attention --view\n"
      "  attn examples run encoder-decoder --explain -";
  command.options = {
      listed_by(kLister, positional("NAME", args->names, "names of examples")),
      flag("--all", args->all, "run all examples"),
      flag("--cells", args->cells, "print '# In [20]' before the output of each cell"),
      text("--job", args->job, "FILE", "the example's job to draw or explain; default: all")};
  add_view_options(command, args->views);
  command.add(flag("--force", args->force, "overwrite FILE if it exists"));
  command.requirements.push_back(
      {{"--job"}, "--view or --explain", [args = args.get()] { return !args->views.empty(); }});
  command.requirements.push_back({{"--force"},
                                  "--view=FILE or --explain FILE",
                                  [args = args.get()] { return args->views.has_file(); }});
  command.conflicts = {{"--cells", "--view"}, {"--cells", "--explain"}};
  command.action = [args] { return run_examples(*args); };
  return command;
}

Command copy_subcommand(const std::shared_ptr<ExampleArgs>& args) {
  Command command;
  command.name = "copy";
  command.summary = "copy the jobs of an example, as a starting point for your own";
  command.description =
      "Copies the job files of an example to the folder DIR, which is created. Change the copies, "
      "and run them with 'attn run'.";
  command.example = "  attn examples copy encoder-decoder mine";
  command.options = {
      required(listed_by(kLister, positional("NAME", args->name, "name of an example"))),
      required(positional("DIR", args->target, "folder for the jobs")),
      flag("--force", args->force, "overwrite existing files")};
  command.action = [args] { return copy_example(*args); };
  return command;
}

Command exercise_subcommand(const std::shared_ptr<ExampleArgs>& args) {
  ExerciseArgs& exercise = args->exercise;
  Command command;
  command.name = "exercise";
  command.summary = "write an example with other numbers to solve by hand, and its solution";
  command.description =
      "Writes the steps of an example with other numbers and blanks for the results to FILE, and "
      "the same with the results to a second file. The same seed gives the same numbers. They are "
      "of the kind of the example's: integers, or with as many digits.";
  command.example = "  attn examples exercise illustrated-self-attention --seed 7 -o sheet.html";
  command.options = {
      required(listed_by(kLister, positional("NAME", args->name, "name of an example"))),
      required(
          text("-o,--output", exercise.sheet, "FILE",
               "the sheet: FILE.html, .md, .tex or .txt; - is text on stdout, with --solution")),
      text("--solution", exercise.solution, "FILE",
           "the solution; default: FILE-solution.html for FILE.html"),
      integer("--seed", exercise.seed, {0}, "N", "number of the exercise; default: 0"),
      text("--job", args->job, "FILE", "the example's job, if it has several"),
      integer("--explain-query", exercise.choice.query, {}, "I",
              "query whose numbers are worked out; default: the first, or the last if the job is "
              "causal"),
      flag("--force", exercise.force, "overwrite files that exist")};
  command.action = [args] { return write_exercise_of(*args); };
  return command;
}

Command check_subcommand(const std::shared_ptr<ExampleArgs>& args) {
  Command command;
  command.name = "check";
  command.summary = "compute examples and compare with the expected output; exit 1 if any differ";
  command.description =
      "Computes examples and compares them with the expected output. The exit code is 1 if any "
      "differ.";
  command.example = "  attn examples check encoder-decoder head-split";
  command.options = {listed_by(kLister, positional("NAME", args->names, "names of examples"))};
  command.action = [args] { return check(*args); };
  return command;
}

}  // namespace

Command examples_command() {
  const auto args = std::make_shared<ExampleArgs>();
  Command command;
  command.description =
      "Lists, runs, copies and checks the worked examples that are installed with attn: "
      "computations of notebooks, tutorials and articles, with the text that they printed. Also "
      "makes exercises of them.";
  command.example =
      "  attn examples list\n"
      "  attn examples run general-attention\n"
      "  attn examples check";
  command.extra_hint = "'attn examples run NAME' runs an example";
  command.add(text("--data", args->data, "DIR",
                   "folder of the examples; default: $ATTN_DATA, or the installed ones"));
  command.subcommands = {list_subcommand(args), run_subcommand(args), copy_subcommand(args),
                         exercise_subcommand(args), check_subcommand(args)};
  command.action = command.subcommands.front().action;
  return command;
}

}  // namespace attn
