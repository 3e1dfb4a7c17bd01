#include "attn/cli/cli.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>

#include "attn/cli/command.h"
#include "attn/cli/help.h"
#include "attn/core/blas.h"
#include "attn/io/file.h"
#include "attn/io/temporaries.h"
#include "attn/job/version.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

struct Subcommand {
  const char* name;
  const char* what;
  Action (*add)(CLI::App&);
};

constexpr Subcommand kSubcommands[] = {
    {"run", "compute attention: one job, from a file or from flags", add_run},
    {"batch", "compute attention: many jobs, on several threads, and go on after a stop",
     add_batch},
    {"examples", "the worked examples that ship with attn: list, run, check", add_examples},
    {"view", "a result as a heat map: on the terminal, as SVG, PNG or HTML", add_view},
    {"inspect", "what tensor files hold: names, dtypes, shapes, ranges", add_inspect},
    {"convert", "one tensor file into another, or into text as NumPy prints it", add_convert},
    {"compare", "how far two files of tensors are apart", add_compare},
    {"random", "NumPy's random streams, bit for bit", add_random},
    {"svd", "truncated singular value decomposition", add_svd},
    {"conventions", "what each library means by attention, as a table", add_conventions},
    {"schema", "the JSON Schema of a job", add_schema},
};

constexpr char kDescription[] =
    "attn computes attention from files: scores, weights and context.\n\n"
    "Example:\n"
    "  attn run --q queries.npy --k keys.npy --v values.npy --causal -o result.npz\n"
    "  attn examples run general-attention\n";

constexpr char kFooter[] =
    "\nExit codes: 0 done, 1 they differ (compare, examples check), 2 usage, 3 some jobs failed\n"
    "(batch), 65 bad data, 66 no such input, 70 internal, 73 can't create output,\n"
    "74 input/output error, 75 locked, 77 not permitted. 'attn COMMAND --help' tells more.";

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

/// Arguments that nothing took: the first flag among them, with the nearest one that there is.
void refuse_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  for (const std::string& word : extras) {
    const std::string flag = word.substr(0, word.find('='));
    if (flag.size() > 1 && flag[0] == '-')
      throw Error(ErrorKind::usage,
                  "unknown flag '" + printable(flag) + "'" + did_you_mean(flag, flags_of(app)));
  }
  throw Error(ErrorKind::usage, "unexpected argument '" + printable(extras[0]) + "'");
}

int fail(const Error& error) {
  for (const std::string& line : error.lines()) std::fprintf(stderr, "attn: %s\n", line.c_str());
  return static_cast<int>(error.kind());
}

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

std::string overview() {
  std::string text = std::string(kDescription) + "\nUsage: attn COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const Subcommand& subcommand : kSubcommands) {
    std::string name = subcommand.name;
    name.resize(13, ' ');
    text += "  " + name + subcommand.what + "\n";
  }
  return text + "\nOptions:\n  -h, --help     this text, or a command's\n" +
         "      --version  the program's version\n" + kFooter + "\n";
}

int run_subcommand(const Subcommand& subcommand, int argc, char** argv) {
  const std::string name = std::string("attn ") + subcommand.name;
  CLI::App app("", name);
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "this text");
  app.allow_extras();
  bool quiet = false;
  const Action action = subcommand.add(app);
  app.add_flag("-q,--quiet", quiet, "no notes or warnings on stderr");
  try {
    app.parse(argc - 1, argv + 1);
    refuse_extras(app);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, printable(error.what()) + "; see '" + name + " --help'");
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()) + "; see '" + name + " --help'");
  }
  set_quiet(quiet);
  return action();
}

int dispatch(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "-h" || first == "--help" || first == "help") {
    print(overview());
    return 0;
  }
  if (first == "--version") {
    print(std::string("attn ") + kVersion + "\n");
    return 0;
  }
  if (const Subcommand* subcommand = find_subcommand(first))
    return run_subcommand(*subcommand, argc, argv);
  if (first.empty()) {
    std::fputs(overview().c_str(), stderr);
    return static_cast<int>(ErrorKind::usage);
  }
  const std::string what = first[0] == '-' ? "flag" : "command";
  throw Error(ErrorKind::usage, "unknown " + what + " '" + printable(first) + "'" +
                                    did_you_mean(first, subcommand_names()) +
                                    "; see 'attn --help'");
}

}  // namespace

int tell_fault(const std::exception_ptr& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (const BrokenPipe&) {
    return 128 + SIGPIPE;
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::bad_alloc&) {
    return fail(Error(ErrorKind::data, "not enough memory for this job"));
  } catch (const std::exception& error) {
    return fail(Error(ErrorKind::internal, std::string("internal error: ") + error.what()));
  }
}

int run_cli(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is seen as BrokenPipe
  remove_temporaries_on_signals();
  configure_blas();
  try {
    return dispatch(argc, argv);
  } catch (...) {
    return tell_fault(std::current_exception());
  }
}

}  // namespace attn
