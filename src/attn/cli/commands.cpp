#include "attn/cli/commands.h"

#include "attn/cli/batch.h"
#include "attn/cli/compare.h"
#include "attn/cli/completions.h"
#include "attn/cli/conventions.h"
#include "attn/cli/convert.h"
#include "attn/cli/examples.h"
#include "attn/cli/inspect.h"
#include "attn/cli/man.h"
#include "attn/cli/merge.h"
#include "attn/cli/message.h"
#include "attn/cli/random.h"
#include "attn/cli/run.h"
#include "attn/cli/schema.h"
#include "attn/cli/svd.h"
#include "attn/cli/topics.h"
#include "attn/cli/view.h"

namespace attn {
namespace {

constexpr CommandEntry kCommands[] = {
    {"run", "compute attention: one job, from a file or from flags", run_command},
    {"batch", "compute attention: many jobs on all processors, resumable", batch_command},
    {"examples", "the worked examples that ship with attn: list, run, check", examples_command},
    {"view", "a result as a heat map: on the terminal, as SVG, PNG or HTML", view_command},
    {"inspect", "what tensor files hold: names, dtypes, shapes, ranges", inspect_command},
    {"convert", "one tensor file into another, or into text as NumPy prints it", convert_command},
    {"compare", "how far two files of tensors are apart", compare_command},
    {"merge", "attention over parts of the keys, put together", merge_command},
    {"random", "NumPy's random streams, bit for bit", random_command},
    {"svd", "truncated singular value decomposition", svd_command},
    {"conventions", "what each library means by attention, as a table", conventions_command},
    {"completions", "completions for bash, zsh or fish", completions_command},
    {"man", "the manual pages", man_command},
    {"schema", "the JSON Schema of a job", schema_command},
};

constexpr char kDescription[] =
    "attn computes attention from files: scores, weights and context.\n\n"
    "Example:\n"
    "  attn run --q queries.npy --k keys.npy --v values.npy --causal -o result.npz\n"
    "  attn examples run general-attention\n";

constexpr char kFooter[] = "\n'attn help COMMAND' and 'attn help TOPIC' tell more.\n";

/// "  run          compute attention"
std::string listed(std::string name, const std::string& what) {
  name.resize(13, ' ');
  return "  " + name + what + "\n";
}

/// -h comes first in help, -q last.
void add_common_options(Command& command) {
  const auto ignore = [](bool) {};
  command.options.insert(command.options.begin(),
                         flag("-h,--help", Store<bool>(ignore), "this text"));
}

}  // namespace

std::span<const CommandEntry> commands() { return kCommands; }

const CommandEntry* find_command(const std::string& name) {
  for (const CommandEntry& entry : kCommands)
    if (name == entry.name) return &entry;
  return nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const CommandEntry& entry : kCommands) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> help_names() {
  std::vector<std::string> names = command_names();
  for (const std::string& topic : topic_names()) names.push_back(topic);
  return names;
}

Command make_command(const CommandEntry& entry) {
  Command command = entry.make();
  add_common_options(command);
  for (Command& subcommand : command.subcommands) add_common_options(subcommand);
  command.add(flag("-q,--quiet", Store<bool>(set_quiet), "no notes or warnings on stderr"));
  return command;
}

std::string overview() {
  std::string text = std::string(kDescription) + "\nUsage: attn COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const CommandEntry& entry : kCommands) text += listed(entry.name, entry.summary);
  text += "\nTopics:\n";
  for (const Topic& topic : topics()) text += listed(topic.name, topic.what);
  return text + "\nOptions:\n  -h, --help     this text, or a command's\n" +
         "      --version  the program's version; with -v, what computes here, too\n" + kFooter;
}

}  // namespace attn
