// What a process of its own does, for what would end or disturb the tests.
#pragma once

#include <functional>
#include <string>

struct ChildEnd {
  int status = 0;   ///< as waitpid() tells it
  std::string err;  ///< what was written to stderr
};

/// Forks and does this; a child that returns ends with exit code 0.
ChildEnd end_of_child(const std::function<void()>& action);

/// Whether `condition` holds in a process of its own.
bool holds_in_child(const std::function<bool()>& condition);
