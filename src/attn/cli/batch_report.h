// What people and programs see of a batch while it runs, all of it on standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "attn/batch/item.h"

namespace attn {

enum class ProgressStyle {
  automatic,  ///< a bar where standard error is a terminal
  plain,      ///< a line every five seconds
  none,
};

struct ReportOptions {
  ProgressStyle style = ProgressStyle::automatic;
  bool json = false;   ///< events instead of everything else: one JSON object a line
  bool quiet = false;  ///< errors only
  std::optional<std::size_t> total = {};
  std::string where;  ///< where all failures stand, for the last line
};

/// Its functions are called one at a time. From its beginning SIGUSR1 asks for a line that says how
/// far the batch is, which the next tick() gives.
class BatchReport {
 public:
  explicit BatchReport(ReportOptions options);
  void item(const Outcome& outcome);
  void tick();
  void end();      ///< the summary
  void abandon();  ///< instead of end(), where nobody reads the results any more: not a word
  std::size_t failed() const { return failed_; }

 private:
  double seconds() const;
  std::string status() const;
  void say(const std::string& line);
  void failure(const Outcome& outcome);
  void event(const std::string& name) const;
  void clear_bar();
  void draw_bar();

  using Clock = std::chrono::steady_clock;
  const ReportOptions options_;
  const bool bar_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool on_screen_ = false;
  std::size_t done_ = 0, failed_ = 0, skipped_ = 0;
};

}  // namespace attn
