// The progress of a job that a team computes.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "attn-mpi/team.h"
#include "attn/cli/run_progress.h"

namespace attn {

/// On member 0: the numbers of rows that the others report. Thread-safe.
class RowReports {
 public:
  explicit RowReports(Team& team) : team_(team), done_(team.size()) {}

  std::size_t rows();  ///< of all others, as far as they have reported
  void finish();       ///< waits for the last report of each

 private:
  Team& team_;
  std::mutex mutex_;  ///< guards the members below
  std::vector<std::size_t> done_;
  std::size_t ended_ = 1;  ///< members, with this one, that have sent their last report
};

/// On the others: counts rows, and reports them each second.
class RowReporter {
 public:
  explicit RowReporter(Team& team);
  void finish();  ///< sends the last report

 private:
  void post(std::size_t rows, bool is_last);

  Team& team_;
  RowCounter counter_;
};

}  // namespace attn
