// Progress, errors and events of a batch, on standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "attn/batch/item.h"
#include "attn/cli/batch_progress.h"

namespace attn {

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
  std::string where;       ///< where all failures are listed, for the summary
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
  void tick();
  void say(const std::string& line);
  bool clear_bar();  ///< call it before other text is written; false if no bar was shown
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
  std::size_t warned_ = 0, removed_ = 0;
  std::map<Change, std::size_t> reruns_;  ///< jobs that --resume ran again, by reason
};

}  // namespace attn
