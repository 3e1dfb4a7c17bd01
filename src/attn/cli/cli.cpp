#include "attn/cli/cli.h"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention/blas.h"
#include "attn/attention/machine.h"
#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/commands.h"
#include "attn/cli/executor.h"
#include "attn/cli/help.h"
#include "attn/cli/parser.h"
#include "attn/cli/terminal.h"
#include "attn/cli/version.h"
#include "attn/io/format.h"
#include "attn/io/open_file.h"
#include "attn/io/temp_files.h"
#include "attn/io/used_files.h"

namespace attn {
namespace {

/// Runs the action. If a file does not exist, it may have been meant as the value of a flag.
int perform(const Command& command, const ParsedCommand& parsed,
            const std::vector<std::string>& words, Executor& executor) {
  const auto report = command.report ? command.report : report_exception;
  try {
    check_isa_variable();
    check_requirements(command, parsed);
    if (parsed.command != &command) check_requirements(*parsed.command, parsed);
    return executor.act(parsed.command->action);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_input) return report(std::current_exception());
    std::vector<Problem> problems = error.problems();
    const std::string hint = hint_detached_value(command, words);
    if (problems[0].hint.empty()) problems[0].hint = hint;
    return report(std::make_exception_ptr(Error(error.kind(), std::move(problems))));
  } catch (...) {
    return report(std::current_exception());
  }
}

int run_command_line(const CommandEntry& entry, const std::vector<std::string>& words,
                     Executor& executor) {
  const Command command = make_command(entry, executor);
  const ParsedCommand parsed = parse(command, std::string("attn ") + entry.name, words);
  if (parsed.help == HelpLength::none) return perform(command, parsed, words, executor);
  print(parsed.help == HelpLength::all ? help_text(*parsed.command, parsed.name)
                                       : short_help_text(*parsed.command, parsed.name));
  return 0;
}

/// 'attn help', 'attn help COMMAND', 'attn help TOPIC'.
int help(const std::string& name) {
  if (name.empty()) {
    print(overview());
  } else if (const CommandEntry* entry = find_command(name)) {
    print(help_text(make_command(*entry), "attn " + name));
  } else if (const Topic* topic = find_topic(name)) {
    print(topic->text);
  } else {
    fail_usage("no help for '" + printable(name) + "'" +
               did_you_mean(name, help_names(), NameKind::command) +
               "; 'attn help' lists commands and topics");
  }
  return 0;
}

/// What is probably meant by the name of an existing file alone.
std::string command_for(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return std::filesystem::exists(path + "/config.json", ignored)
               ? "'attn model inspect' shows a model"
               : "'attn batch' computes the jobs in a folder";
  const FormatRow* const format = format_of_suffix(path);
  return format != nullptr && format->holds_one() ? "'attn view' draws an array"
                                                  : "'attn run' computes a job";
}

int dispatch(int argc, char** argv, Executor& executor) {
  if (argc < 2) {
    write_error_lines(overview());
    return static_cast<int>(ErrorKind::usage);
  }
  const std::string first = argv[1];
  if (first == "-h" || first == "--help" || first == "help")
    return help(first == "help" && argc > 2 ? argv[2] : "");
  if (first == "--version") {
    const std::string second = argc > 2 ? argv[2] : "";
    print(version_text(second == "-v" || second == "--verbose"));
    return 0;
  }
  if (const CommandEntry* entry = find_command(first))
    return run_command_line(*entry, {argv + 2, argv + argc}, executor);
  std::vector<std::string> known = command_names();
  known.emplace_back("help");
  known.emplace_back("--version");
  const std::string near = did_you_mean(first, known, NameKind::command);
  std::error_code ignored;
  if (near.empty() && std::filesystem::exists(first, ignored))
    fail_usage("expected a command before " + printable(first) + ": " + command_for(first) +
               "; see 'attn --help'");
  const std::string what = first.starts_with('-') ? "flag" : "command";
  fail_usage("unknown " + what + " '" + printable(first) + "'" + near + "; see 'attn --help'");
}

/// Errors: data, if the stack is too small for any command.
void require_stack() {
  constexpr rlim_t kLeast = rlim_t{128} << 10;  // arguments and the environment count, too
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  fail_data("the stack is limited to " + std::to_string(limit.rlim_cur >> 10) +
            " KiB (ulimit -s): expected " + std::to_string(kLeast >> 10) + " or more");
}

std::atomic<bool> ran_out = false;

[[noreturn]] void handle_out_of_memory() {
  ran_out = true;
  throw std::bad_alloc();
}

/// The handler for std::terminate, which an exception in a noexcept function calls (CLI11 and
/// nlohmann/json allocate in such functions). Reports the exception instead of calling abort().
[[noreturn]] void handle_terminate() {
  remove_temp_files();
  int code = static_cast<int>(ErrorKind::internal);
  try {
    if (const std::exception_ptr fault = std::current_exception()) std::rethrow_exception(fault);
    // There may be no current exception.
    if (ran_out) throw std::bad_alloc();
    write_error_lines("attn: internal error: terminated\n");
  } catch (const MemoryLimitReached&) {
    code = report_exception(std::current_exception());
  } catch (const std::bad_alloc& fault) {
    code = report_out_of_memory(message_of(fault));
  } catch (const std::exception& error) {
    write_error_lines(std::string("attn: internal error: ") + error.what() + "\n");
  } catch (...) {
    write_error_lines("attn: internal error\n");
  }
  std::_Exit(code);
}

}  // namespace

int run_cli(int argc, char** argv) { return run_cli(argc, argv, local_executor()); }

int run_cli(int argc, char** argv, Executor& executor) {
  if (argc > 1 && std::string_view(argv[1]) == "batch") install_status_signal();
  occupy_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe becomes BrokenPipe
  remove_temp_files_on_signals();
  std::set_terminate(handle_terminate);
  std::set_new_handler(handle_out_of_memory);
  configure_blas();
  try {
    require_stack();
    record_used_files(true);
    return dispatch(argc, argv, executor);
  } catch (...) {
    return report_exception(std::current_exception());
  }
}

}  // namespace attn
