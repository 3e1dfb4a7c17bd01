// What every subcommand is made of.
//
// One file a subcommand: add_NAME() declares its options on `app` and returns what to do once they
// are parsed, which gives the exit code. Errors are thrown (base/error.h).
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "attn/base/printable.h"

namespace CLI {
class App;
}

namespace attn {

using Action = std::function<int()>;

Action add_run(CLI::App& app);
Action add_batch(CLI::App& app);
Action add_examples(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_random(CLI::App& app);
Action add_svd(CLI::App& app);
Action add_convert(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_conventions(CLI::App& app);
Action add_merge(CLI::App& app);
Action add_completions(CLI::App& app);
Action add_man(CLI::App& app);
Action add_schema(CLI::App& app);
Action add_view(CLI::App& app);

/// "attn: TEXT" on stderr. Every message of the program goes through here: names from files can
/// hold anything, so control characters are escaped and long messages cut (printable_message()).
void write_message(const std::string& text);

/// The same, unless -q was given.
void note(const std::string& text);
void set_quiet(bool quiet);
bool is_quiet();

/// Says on stderr what an exception means, and gives the exit code. Never throws.
int tell_fault(const std::exception_ptr& fault);

/// Writes data to standard output and flushes it; a failure (a full disk) is Error(io).
void print(const std::string& text);

}  // namespace attn
