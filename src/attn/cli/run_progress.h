// The progress of attn run, on standard error; of a team of processes (attn-mpi), on that of member
// 0.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "attn/base/posting_team.h"

namespace attn {

/// While it exists, counts the rows that the kernels of this process compute, and prints the share
/// of all rows: a line every five seconds and at the end, or as a bar, which appears after two
/// seconds, is overwritten each second and removed at the end. The other members of a team report
/// their rows to member 0 each second.
class RunProgress {
 public:
  /// `team` may be nullptr. `rows`: of all members; 0 if they are not counted, because the
  /// reference path computes them.
  RunProgress(PostingTeam* team, bool as_bar, std::size_t rows);
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;
  ~RunProgress();

  /// Call it on all members after the work: sends and receives the last reports.
  void finish();

 private:
  bool is_first() const { return team_ == nullptr || team_->rank() == 0; }
  void watch();
  void post_report(bool is_last);
  void take_reports();
  void print();
  void stop();
  void clear_bar();

  PostingTeam* const team_;
  const bool as_bar_;
  const std::size_t rows_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<std::size_t> own_ = 0;
  std::vector<std::size_t> done_;  ///< on member 0: rows of each other member
  std::size_t ended_ = 1;          ///< on member 0: members, with this one, that have ended
  bool is_shown_ = false;          ///< the bar is on the screen
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

/// "45 % done, 12 s left"; "100 % done after 26 s"; without rows "running for 26 s"
std::string progress_text(std::size_t done, std::size_t rows, double seconds);

}  // namespace attn
