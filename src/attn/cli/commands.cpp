#include "attn/cli/commands.h"

#include "attn/base/text.h"
#include "attn/cli/all_commands.h"
#include "attn/cli/batch.h"
#include "attn/cli/compare.h"
#include "attn/cli/help.h"
#include "attn/cli/run.h"
#include "attn/cli/terminal.h"

namespace attn {
namespace {

/// Of a command that always computes in this process.
template <Command (*make)()>
Command alone(Executor&) {
  return make();
}

constexpr CommandEntry kCommands[] = {
    {"run", "compute attention for one job, from a file or flags", run_command},
    {"batch", "run many jobs in parallel; can resume an interrupted batch", batch_command},
    {"examples", "list, run and check worked examples, make exercises", alone<examples_command>},
    {"view", "draw a tensor as a heat map: terminal, SVG, PDF, PNG or HTML", alone<view_command>},
    {"mask", "draw or write which keys each query sees", alone<mask_command>},
    {"inspect", "list the tensors in files: names, dtypes, shapes, ranges", alone<inspect_command>},
    {"convert", "convert tensor files, or print them as NumPy does", alone<convert_command>},
    {"compare", "compare the tensors of two files, or of a file and a job", alone<compare_command>},
    {"sensitivity", "list the mistakes of kernels that a test would not notice",
     alone<sensitivity_command>},
    {"stats", "print statistics of attention heads", alone<stats_command>},
    {"rollout", "compute attention rollout over the layers of a model", alone<rollout_command>},
    {"merge", "combine attention over parts of the keys", alone<merge_command>},
    {"model", "show how attn reads the layers of a model", alone<model_command>},
    {"random", "generate random arrays of NumPy, PyTorch, JAX and Python", alone<random_command>},
    {"svd", "compute a truncated singular value decomposition", alone<svd_command>},
    {"conventions", "list the attention conventions of each library", alone<conventions_command>},
    {"completions", "print completions for bash, zsh or fish", alone<completions_command>},
    {"man", "print the manual pages", alone<man_command>},
    {"schema", "print the JSON Schema of a job", alone<schema_command>},
};

constexpr char kDescription[] =
    "attn computes attention from files: scores, weights and context.\n\n"
    "Example:\n"
    "  attn run --q queries.npy --k keys.npy --v values.npy --causal -o result.npz\n"
    "  attn examples run general-attention\n";

constexpr char kFooter[] = "\nSee 'attn help COMMAND' and 'attn help TOPIC' for details.\n";

/// "  run          compute attention"
std::string summary_line(std::string name, const std::string& what) {
  name.resize(13, ' ');
  return "  " + name + what + "\n";
}

/// -h comes first in help, -q last.
void add_common_options(Command& command) {
  const auto ignore = [](bool) {};
  command.options.insert(command.options.begin(),
                         common(flag("-h,--help", Store<bool>(ignore), "show this help")));
  if (command.find("--force") != nullptr)
    command.hints.push_back(
        {{"-f", "--overwrite", "--clobber"}, "use --force to overwrite existing files"});
}

/// Takes no value, not even =true.
Option program_option(const std::string& names, const std::string& help) {
  Option option = flag(names, Store<bool>([](bool) {}), help);
  option.value =
      OptionalValue{"", [](const std::string&) {}, [](const std::string&) { return false; }};
  return option;
}

}  // namespace

std::span<const CommandEntry> commands() { return kCommands; }

const CommandEntry* find_command(const std::string& name) {
  for (const CommandEntry& entry : kCommands)
    if (name == entry.name) return &entry;
  return nullptr;
}

std::vector<std::string> command_names() { return texts_of(kCommands, &CommandEntry::name); }

std::vector<std::string> help_names() {
  std::vector<std::string> names = command_names();
  for (const std::string& topic : topic_names()) names.push_back(topic);
  return names;
}

Command make_command(const CommandEntry& entry, Executor& executor) {
  Command command = entry.make(executor);
  add_common_options(command);
  for (Command& subcommand : command.subcommands) add_common_options(subcommand);
  command.add(common(flag("-q,--quiet", Store<bool>(set_quiet), command.quiet_help)));
  return command;
}

std::vector<Option> program_options() {
  return {
      program_option("-h,--help",
                     "show help; after a command, -h lists common options, --help all"),
      program_option("--version", "show the version; with -v, also kernels, BLAS and processors")};
}

std::string overview() {
  constexpr std::size_t kFlagColumn = 17;
  std::string text = std::string(kDescription) + "\nUsage: attn COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const CommandEntry& entry : kCommands) text += summary_line(entry.name, entry.summary);
  text += "\nTopics:\n";
  for (const Topic& topic : topics()) text += summary_line(topic.name, topic.what);
  text += "\nOptions:\n";
  for (const Option& option : program_options())
    text += help_entry(flags_of(option), option.texts().help, kFlagColumn);
  return text + kFooter;
}

}  // namespace attn
