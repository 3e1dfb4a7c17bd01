// Error, the exception of reported failures: its kind is the exit code, its problems the messages.
#pragma once

#include <concepts>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/memory_limit.h"

namespace attn {

/// What went wrong. The value is the exit code (after sysexits.h; docs/command-line.md).
enum class ErrorKind {
  usage = 2,           ///< the command line is wrong
  data = 65,           ///< an input was read and is invalid
  no_input = 66,       ///< an input does not exist or cannot be opened
  internal = 70,       ///< a bug in attn
  cannot_create = 73,  ///< an output cannot be created or already exists
  io = 74,             ///< reading or writing failed
  busy = 75,           ///< another run holds the lock: try again
  permission = 77,     ///< permission denied
};

/// One problem of an error. It has either `expected` and `found`, or a `message`. Code that finds a
/// problem sets the subject (a tensor's name, an option's key); code that knows where the subject
/// came from adds that to `where`.
struct Problem {
  std::vector<std::string> where = {};  ///< files and flags, outermost first; "" is left out
  std::size_t line = 0, column = 0;     ///< in a text file, from 1; 0: not shown
  std::string subject = {};
  std::string expected = {}, found = {};
  std::string message = {};
  std::string hint = {};  ///< what to do about it
};

/// "WHERE: line 3, column 7: SUBJECT: expected EXPECTED, found FOUND; HINT", without the parts that
/// are empty; `message` replaces "expected EXPECTED, found FOUND".
std::string to_string(const Problem& problem);

/// An error with one or more problems. At most ten are kept; the last line then states how many
/// more there were.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message);
  Error(ErrorKind kind, Problem problem);
  /// `omitted`: the number of problems that are not in `problems`.
  Error(ErrorKind kind, std::vector<Problem> problems, std::size_t omitted = 0);

  ErrorKind kind() const { return kind_; }
  const std::vector<Problem>& problems() const { return problems_; }
  std::size_t omitted() const { return omitted_; }
  const std::vector<std::string>& lines() const { return lines_; }

  /// The same error with `where` in front of each problem's `where`.
  Error within(const std::string& where) const;

 private:
  ErrorKind kind_;
  std::vector<Problem> problems_;
  std::size_t omitted_;
  std::vector<std::string> lines_;
};

/// Throw Error(usage) and Error(data), with a problem or with a message alone. GCC 12 would also
/// convert a problem in braces to an overload for std::string.
[[noreturn]] void fail_usage(Problem problem);
[[noreturn]] void fail_data(Problem problem);
template <std::convertible_to<std::string> Message>
[[noreturn]] void fail_usage(Message message) {
  fail_usage(Problem{.message = std::move(message)});
}
template <std::convertible_to<std::string> Message>
[[noreturn]] void fail_data(Message message) {
  fail_data(Problem{.message = std::move(message)});
}

/// Collects problems: keeps the first ten and counts all.
class ProblemList {
 public:
  static constexpr std::size_t kMaxKept = 10;  ///< problems that are kept

  /// Whether the next problem will be kept. Check it before computing a suggestion, which is slow.
  bool keeps_next() const { return kept_.size() < kMaxKept; }
  void add(Problem problem);
  bool empty() const { return count_ == 0; }
  const std::vector<Problem>& kept() const { return kept_; }
  [[noreturn]] void raise(ErrorKind kind) const;

 private:
  std::vector<Problem> kept_;
  std::size_t count_ = 0;
};

/// Returns compute(); adds `where` in front of the errors that it throws, as Error::within() and
/// MemoryLimitReached::within().
template <class Compute>
auto within(const std::string& where, Compute&& compute) {
  try {
    return std::forward<Compute>(compute)();
  } catch (const Error& error) {
    throw error.within(where);
  } catch (const MemoryLimitReached& error) {
    throw error.within(where.c_str());
  }
}

}  // namespace attn
