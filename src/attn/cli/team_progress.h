// The progress of attn run on a team of processes (attn-mpi), on standard error of member 0.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "attn/base/posting_team.h"

namespace attn {

/// While it exists, counts the rows that the kernels of this member compute. The others report them
/// to member 0 each second, which prints the share of all rows: a line every five seconds and at
/// the end, or as a bar: a line that is overwritten. The reference path does not count rows.
class TeamProgress {
 public:
  /// `rows`: of all members.
  TeamProgress(PostingTeam& team, bool as_bar, std::size_t rows);
  TeamProgress(const TeamProgress&) = delete;
  TeamProgress& operator=(const TeamProgress&) = delete;
  ~TeamProgress();

  /// Call it on all members after the work: sends and receives the last reports.
  void finish();

 private:
  void watch();
  void post_report(bool is_last);
  void take_reports();
  void print() const;
  void stop();

  PostingTeam& team_;
  const bool as_bar_;
  const std::size_t rows_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<std::size_t> own_ = 0;
  std::vector<std::size_t> done_;  ///< on member 0: rows of each member
  std::size_t ended_ = 1;          ///< on member 0: members, with this one, that have ended
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// "45 % done, 12 s left"; "100 % done after 26 s"
std::string progress_text(std::size_t done, std::size_t rows, double seconds);

}  // namespace attn
