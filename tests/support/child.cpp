#include "support/child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

ChildEnd end_of_child(const std::function<void()>& action) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    action();
    _exit(0);
  }
  close(pipe_ends[1]);
  ChildEnd end;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    end.err.append(buffer, static_cast<std::size_t>(count));
  close(pipe_ends[0]);
  REQUIRE(waitpid(child, &end.status, 0) == child);
  return end;
}

bool holds_in_child(const std::function<bool()>& condition) {
  const ChildEnd end = end_of_child([&] { _exit(condition() ? 0 : 1); });
  return WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0;
}
