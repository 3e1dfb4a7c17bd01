#include "attn/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <span>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"
#include "attn/cli/command.h"
#include "attn/cli/detached_value.h"
#include "attn/cli/subcommand.h"
#include "attn/cli/topics.h"
#include "attn/cli/values.h"
#include "attn/cli/version.h"
#include "attn/core/blas.h"
#include "attn/io/descriptor.h"
#include "attn/io/output_file.h"
#include "attn/io/temporaries.h"

namespace attn {
namespace {

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// The flag that was probably meant.
std::string near_flag(const std::string& flag, const CLI::App& app) {
  if (flag == "--threads" && app.get_option_no_throw("--jobs") != nullptr)
    return "; -j (--jobs) says how many jobs at a time";
  return did_you_mean(flag, flags_of(app));
}

/// Arguments that nothing took: the first flag among them, with the nearest one that there is.
void refuse_extras(const CLI::App& app, std::span<char* const> typed) {
  std::vector<std::string> extras = app.remaining();
  std::erase(extras, "--");  // CLI11 lists it, too: behind it there are no flags
  if (extras.empty()) return;
  for (const std::string& word : extras) {
    const std::string flag = word.substr(0, word.find('='));
    if (flag.size() > 1 && flag[0] == '-')
      throw Error(ErrorKind::usage,
                  "unknown flag '" + printable(flag) + "'" + near_flag(flag, app));
  }
  const std::string detached = detached_value(app, typed, extras[0]);
  throw Error(ErrorKind::usage,
              "unexpected argument '" + printable(extras[0]) + "'" +
                  (detached.empty() ? did_you_mean(extras[0], commands_of(app)) : detached));
}

/// "--causal --causal=false": CLI11 has a flag that may stand alone mean what came last.
void refuse_contradictions(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& typed = option->results();
    const bool may_stand_alone = option->get_expected_min() == 0;
    if (may_stand_alone &&
        std::adjacent_find(typed.begin(), typed.end(), std::not_equal_to<>()) != typed.end())
      throw Error(ErrorKind::usage, option->get_name() + given_times(typed.size()));
  }
}

/// Takes the arguments, all of them; one that is mistyped is told before one that is missing.
void parse(CLI::App& app, std::span<char* const> typed) {
  try {
    app.parse(static_cast<int>(typed.size()), typed.data());
  } catch (const CLI::RequiredError&) {
    refuse_extras(app, typed);
    throw;
  }
  refuse_extras(app, typed);
  refuse_contradictions(app);
}

/// What the command does. A file that is not there may have been meant as a flag's value.
int perform(const DeclaredCommand& command, std::span<char* const> typed) {
  try {
    return command.action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_input) throw;
    std::vector<std::string> lines = error.lines();
    const auto missing = std::find_if(typed.begin(), typed.end(), [&](const char* word) {
      return lines[0].starts_with(printable(word) + ": ");
    });
    if (missing != typed.end()) lines[0] += detached_value(*command.app, typed, *missing);
    throw Error(error.kind(), lines);
  }
}

int fail(const Error& error) {
  for (const std::string& line : error.lines()) write_message(line);
  return static_cast<int>(error.kind());
}

int run_subcommand(const Subcommand& subcommand, int argc, char** argv) {
  const std::string name = std::string("attn ") + subcommand.name;
  const std::unique_ptr<DeclaredCommand> command = declare(subcommand);
  CLI::App& app = *command->app;
  const std::span<char* const> typed(argv + 1, static_cast<std::size_t>(argc - 1));
  try {
    parse(app, typed);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, printable(said_by(error)) + "; see '" + name + " --help'");
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()) + "; see '" + name + " --help'");
  }
  set_quiet(command->quiet);
  return perform(*command, typed);
}

/// 'attn help', 'attn help COMMAND', 'attn help TOPIC'.
int help(const std::string& asked) {
  if (asked.empty()) {
    print(overview());
  } else if (const Subcommand* subcommand = find_subcommand(asked)) {
    print(declare(*subcommand)->app->help());
  } else if (const Topic* topic = find_topic(asked)) {
    print(topic->text);
  } else {
    throw Error(ErrorKind::usage, "no help on '" + printable(asked) + "'" +
                                      did_you_mean(asked, help_names()) +
                                      "; 'attn help' names commands and topics");
  }
  return 0;
}

int dispatch(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "-h" || first == "--help" || first == "help")
    return help(first == "help" && argc > 2 ? argv[2] : "");
  if (first == "--version") {
    const std::string second = argc > 2 ? argv[2] : "";
    print(version_text(second == "-v" || second == "--verbose"));
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

/// Without an allocation: there may be no memory even for words.
int tell_no_memory() {
  std::fputs("attn: not enough memory for this job\n", stderr);
  return static_cast<int>(ErrorKind::data);
}

std::atomic<bool> ran_out = false;

[[noreturn]] void note_no_memory() {
  ran_out = true;
  throw std::bad_alloc();
}

/// Where libraries cannot let an exception through (CLI11 and nlohmann/json allocate in noexcept
/// functions), the program would end with abort() and a stack of words for developers.
[[noreturn]] void end_by_exception() {
  remove_temporaries();
  int code = static_cast<int>(ErrorKind::internal);
  try {
    if (const std::exception_ptr fault = std::current_exception()) std::rethrow_exception(fault);
    // Some ways here leave no exception to ask.
    if (ran_out) throw std::bad_alloc();
    std::fputs("attn: internal error: terminated\n", stderr);
  } catch (const std::bad_alloc&) {
    code = tell_no_memory();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attn: internal error: %s\n", error.what());
  } catch (...) {
    std::fputs("attn: internal error\n", stderr);
  }
  std::_Exit(code);
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
    return tell_no_memory();
  } catch (const std::exception& error) {
    write_message(std::string("internal error: ") + error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}

int run_cli(int argc, char** argv) {
  occupy_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is seen as BrokenPipe
  remove_temporaries_on_signals();
  std::set_terminate(end_by_exception);
  std::set_new_handler(note_no_memory);
  configure_blas();
  try {
    return dispatch(argc, argv);
  } catch (...) {
    return tell_fault(std::current_exception());
  }
}

}  // namespace attn
