// How anything in attn fails: one exception, which knows the exit code it means.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace attn {

/// What went wrong; the value is the program's exit code (after sysexits.h; docs/command-line.md).
enum class ErrorKind {
  usage = 2,           ///< the command line contradicts itself or names something unknown
  data = 65,           ///< an input was read and is not what it must be
  no_input = 66,       ///< an input does not exist or cannot be opened
  internal = 70,       ///< a promise inside attn was broken
  cannot_create = 73,  ///< an output cannot be created, or exists already
  io = 74,             ///< reading or writing failed half-way
  busy = 75,           ///< another run holds the lock: try again
  permission = 77,     ///< the system does not permit it
};

/// `text` is one line: "FILE: TENSOR: what was expected, what was found". Where several things are
/// wrong at once each has a line of its own; there are at most 100, of which the last one then says
/// how many more there were.
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

/// `text` made safe to print on a terminal: control characters and bytes that are not UTF-8 appear
/// as \xNN, so that a name taken from a file cannot move the cursor or forge a line.
std::string printable(const std::string& text);

/// A whole message made safe in the same way. It may be up to 4,000 characters long.
std::string printable_message(const std::string& text);

/// The member of `known` that `word` was probably meant to be, by spelling, by its parts or by the
/// name that other libraries have for it (nearest.cpp), or "" when nothing is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// " (did you mean 'scores'?)", or "" when nothing is near. Made to be appended to a message.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace attn
