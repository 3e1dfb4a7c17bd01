// How far a batch is, and the last word on that where a signal ends the program.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>

namespace attn {

/// Counted by the threads of a batch, and read by a signal handler.
struct BatchProgress {
  std::optional<std::size_t> total = {};
  bool json = false, quiet = false;
  bool resumable = false;  ///< --resume can go on with it
  std::atomic<std::size_t> done = 0, failed = 0, skipped = 0;
  std::atomic<bool> bar_on_screen = false;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  std::size_t finished() const { return done + failed + skipped; }
  std::chrono::microseconds age() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                                 start);
  }
};

/// As long as one lives, SIGINT, SIGTERM and SIGHUP, before they do what they did, say "stopped
/// after 90 of 1500 jobs; --resume goes on" on standard error, or give the `end` event. One at a
/// time.
class StopTeller {
 public:
  explicit StopTeller(const BatchProgress& progress);
  StopTeller(const StopTeller&) = delete;
  StopTeller& operator=(const StopTeller&) = delete;
  ~StopTeller();
  static bool has_told();  ///< the program is ending: nothing more is to be said
};

}  // namespace attn
