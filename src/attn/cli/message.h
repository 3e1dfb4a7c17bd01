// What the program writes on standard error and standard output.
#pragma once

#include <exception>
#include <string>

namespace attn {

/// "attn: TEXT" on stderr. Every message goes through here: names from files can contain anything,
/// so control characters are escaped and long messages cut (printable_message()).
void write_message(const std::string& text);

/// The same, unless -q was given.
void note(const std::string& text);
void set_quiet(bool quiet);
bool is_quiet();

/// Reports an exception on stderr and returns the exit code. Never throws.
int report_exception(const std::exception_ptr& exception);

/// Without an allocation. Returns the exit code.
int report_out_of_memory();

/// Writes data to standard output and flushes it; a failure (a full disk) is Error(io).
void print(const std::string& text);

}  // namespace attn
