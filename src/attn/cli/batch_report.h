// Progress, errors and events of a batch, on standard error, also when a signal ends the program.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "attn/batch/item.h"

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

enum class ProgressStyle {
  automatic,  ///< a bar if standard error is a terminal
  plain,      ///< a line every five seconds
  none,
};

struct ReportOptions {
  ProgressStyle style = ProgressStyle::automatic;
  bool json = false;     ///< events only: one JSON object per line
  bool quiet = false;    ///< errors only, and the summary if jobs failed
  bool dry_run = false;  ///< jobs are planned but not run
  std::optional<std::size_t> total = {};
  std::string where;       ///< the file that lists all failures, for the summary
  bool resumable = false;  ///< there is a manifest, so that --resume can continue
};

/// Makes SIGUSR1 request a progress line, which the next BatchReport::tick() prints. Without this
/// call the signal ends the program.
void install_status_signal();

/// As report_exception(), as an event: {"event":"error","error":["..."],"code":74}.
int report_exception_as_event(const std::exception_ptr& fault);

/// Not thread-safe. While it exists, a signal that ends the program reports the progress
/// (StopReporter).
class BatchReport {
 public:
  explicit BatchReport(ReportOptions options);
  void item(const Outcome& outcome);
  void take_back(const Outcome& outcome);  ///< its result could not be written: uncounts it
  void take_back_done(std::size_t count) { progress_.done -= count; }
  /// Warns that the summary lacks the statistics of `count` skipped jobs.
  void skipped_without_statistics(std::size_t count);
  void tick();
  void print_line(const std::string& line);
  bool clear_bar();  ///< call before writing other text; false if no bar was shown
  void draw_bar();
  int fault(
      const std::exception_ptr& fault);  ///< reports what ended the batch; returns the exit code
  void end(int code);                    ///< the summary
  std::size_t failed() const { return progress_.failed; }

 private:
  double seconds() const { return std::chrono::duration<double>(progress_.elapsed()).count(); }
  std::string status() const;
  std::atomic<std::size_t>& count_of(Status status);
  void say_status();
  void failure(const Outcome& outcome);
  void warning(const Outcome& outcome);
  void rerun(const Outcome& outcome);
  std::string reruns() const;
  void event(const std::string& name, const std::string& more = "") const;

  using Clock = std::chrono::steady_clock;
  const ReportOptions options_;
  const bool bar_;
  BatchProgress progress_;
  Clock::time_point drawn_ = progress_.start;
  const StopReporter stop_reporter_{progress_};
  std::map<std::string, std::size_t> warned_;  ///< jobs with a warning, by its text without digits
  std::size_t removed_ = 0;
  std::map<Change, std::size_t> reruns_;  ///< jobs that --resume ran again, by reason
};

}  // namespace attn
