#include "attn/batch/worker.h"

#include <cstdio>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {
namespace {

/// "0.53"
std::string short_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", seconds);
  return text;
}

}  // namespace

Outcome overdue(const Task& task) {
  Outcome outcome{.number = task.item.number, .name = task.item.name, .status = Status::failed};
  outcome.seconds = task.seconds();
  outcome.error = {printable(task.item.name) + ": took more than " + short_seconds(task.limit) +
                   " s (--timeout), given up after " + short_seconds(outcome.seconds) + " s"};
  outcome.code = static_cast<int>(ErrorKind::busy);
  return outcome;
}

}  // namespace attn
