// Runs code in a child process, for tests that would end or disturb the test program.
#pragma once

#include <functional>
#include <string>

struct ChildEnd {
  int status = 0;   ///< as set by waitpid()
  std::string err;  ///< its stderr
};

/// Forks and runs the function in the child; a child that returns has exit code 0.
ChildEnd end_of_child(const std::function<void()>& action);

/// Evaluates `condition` in a child process.
bool holds_in_child(const std::function<bool()>& condition);
