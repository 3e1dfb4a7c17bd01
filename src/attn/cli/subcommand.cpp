#include "attn/cli/subcommand.h"

#include <CLI/CLI.hpp>

#include "attn/cli/help.h"
#include "attn/cli/topics.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"run", "compute attention: one job, from a file or from flags", add_run},
    {"batch", "compute attention: many jobs on all processors, resumable", add_batch},
    {"examples", "the worked examples that ship with attn: list, run, check", add_examples},
    {"view", "a result as a heat map: on the terminal, as SVG, PNG or HTML", add_view},
    {"inspect", "what tensor files hold: names, dtypes, shapes, ranges", add_inspect},
    {"convert", "one tensor file into another, or into text as NumPy prints it", add_convert},
    {"compare", "how far two files of tensors are apart", add_compare},
    {"merge", "attention over parts of the keys, put together", add_merge},
    {"random", "NumPy's random streams, bit for bit", add_random},
    {"svd", "truncated singular value decomposition", add_svd},
    {"conventions", "what each library means by attention, as a table", add_conventions},
    {"completions", "completions for bash, zsh or fish", add_completions},
    {"man", "the manual pages", add_man},
    {"schema", "the JSON Schema of a job", add_schema},
};

constexpr char kDescription[] =
    "attn computes attention from files: scores, weights and context.\n\n"
    "Example:\n"
    "  attn run --q queries.npy --k keys.npy --v values.npy --causal -o result.npz\n"
    "  attn examples run general-attention\n";

constexpr char kFooter[] = "\n'attn help COMMAND' and 'attn help TOPIC' tell more.\n";

/// What may be given: the words of a job's key, or those that CLI11 checks, "WORD:{text,json}".
std::vector<std::string> words_of(const CLI::Option& option) {
  for (const Field& field : job_fields())
    if (!field.flag.empty() && option.check_name(field.flag) && field.form == FieldForm::word)
      return field.words;
  const std::string type = option.get_type_name();
  const std::size_t open = type.find(":{"), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 2, close - open - 2), ',');
}

/// An empty value would count as none given; a script whose variable is empty is to hear of it.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator not_empty(
      [](const std::string& value) {
        return value.empty() ? std::string("expected a value, found ''") : std::string();
      },
      "");
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_min() > 0) option->check(not_empty);
  for (CLI::App* part : app.get_subcommands({})) refuse_empty_values(*part);
}

/// "  run          compute attention"
std::string listed(std::string name, const std::string& what) {
  name.resize(13, ' ');
  return "  " + name + what + "\n";
}

}  // namespace

std::span<const Subcommand> subcommands() { return kSubcommands; }

const Subcommand* find_subcommand(const std::string& name) {
  for (const Subcommand& subcommand : kSubcommands)
    if (name == subcommand.name) return &subcommand;
  return nullptr;
}

std::vector<std::string> subcommand_names() {
  std::vector<std::string> names;
  for (const Subcommand& subcommand : kSubcommands) names.emplace_back(subcommand.name);
  return names;
}

std::vector<std::string> help_names() {
  std::vector<std::string> names = subcommand_names();
  for (const std::string& topic : topic_names()) names.push_back(topic);
  return names;
}

DeclaredCommand::DeclaredCommand() = default;
DeclaredCommand::~DeclaredCommand() = default;

std::unique_ptr<DeclaredCommand> declare(const Subcommand& subcommand) {
  auto command = std::make_unique<DeclaredCommand>();
  command->app = std::make_unique<CLI::App>("", std::string("attn ") + subcommand.name);
  CLI::App& app = *command->app;
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "this text");
  app.allow_extras();
  command->action = subcommand.add(app);
  refuse_empty_values(app);
  app.add_flag("-q,--quiet", command->quiet, "no notes or warnings on stderr");
  return command;
}

std::string overview() {
  std::string text = std::string(kDescription) + "\nUsage: attn COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const Subcommand& subcommand : kSubcommands)
    text += listed(subcommand.name, subcommand.what);
  text += "\nTopics:\n";
  for (const Topic& topic : topics()) text += listed(topic.name, topic.what);
  return text + "\nOptions:\n  -h, --help     this text, or a command's\n" +
         "      --version  the program's version; with -v, what computes here, too\n" + kFooter;
}

std::vector<OptionFacts> facts_of(const CLI::App& app) {
  std::vector<OptionFacts> all;
  for (const CLI::Option* option : app.get_options()) {
    OptionFacts facts;
    facts.positional = option->get_positional();
    if (facts.positional) facts.names = {option->get_name(true)};
    if (facts.positional) facts.synopsis = help_formatter()->make_option_usage(option);
    for (const std::string& name : option->get_snames()) facts.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) facts.names.push_back("--" + name);
    facts.takes_value = option->get_expected_min() > 0;
    const std::string type = option->get_type_name();
    facts.placeholder = type.substr(0, type.find(':'));
    facts.words = words_of(*option);
    facts.group = option->get_group();
    facts.what = option->get_description();
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace attn
