// The progress of a batch, and the message when a signal ends the program.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>

namespace attn {

/// Updated by the threads of a batch and read by a signal handler.
struct BatchProgress {
  std::optional<std::size_t> total = {};
  bool json = false, quiet = false;
  bool resumable = false;  ///< --resume can continue the batch
  std::atomic<std::size_t> done = 0, failed = 0, skipped = 0;
  std::atomic<bool> bar_on_screen = false;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::size_t finished() const { return done + failed + skipped; }
  std::chrono::microseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                                 start);
  }
};

/// While it exists, SIGINT, SIGTERM and SIGHUP print "stopped after 90 of 1500 jobs; --resume
/// continues" on standard error, or the `end` event, before their previous action. Only one may
/// exist at a time.
class StopReporter {
 public:
  explicit StopReporter(const BatchProgress& progress);
  StopReporter(const StopReporter&) = delete;
  StopReporter& operator=(const StopReporter&) = delete;
  ~StopReporter();
  static bool has_reported();  ///< the program is ending and must print nothing more
};

}  // namespace attn
