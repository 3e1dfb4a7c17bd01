// The one exception type of the program. Its kind is the exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

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

/// `text` is one line: "FILE: TENSOR: expected ..., found ...". Several problems found at once have
/// a line each. At most 100 lines are kept; the last then says how many there were.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text);
  Error(ErrorKind kind, std::vector<std::string> lines);

  ErrorKind kind() const { return kind_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  ErrorKind kind_;
  std::vector<std::string> lines_;
};

}  // namespace attn
