// attn run and attn batch on the members of a team.
#pragma once

#include <string>

#include "attn-mpi/team.h"
#include "attn-mpi/team_start.h"
#include "attn/cli/executor.h"

namespace attn {

class RankExecutor : public Executor {
 public:
  /// `leave_rank` is called before the process ends with this exit code while threads compute.
  RankExecutor(Team& team, const ProcessShare& process_share, void (*leave_rank)(int code));

  /// On the other members: waits for member 0. False if it dismisses them.
  bool await_start();
  /// On member 0.
  TeamState state() const { return state_; }

  int act(const std::function<int()>& action) override;
  void leave(int code) override { leave_rank_(code); }

  std::vector<Option> run_options() override;
  std::optional<int> follow(const RunArgs& args) override;
  std::unique_ptr<PlannedRun> plan(const RunArgs& args, const Job& job, PreparedJob& prepared,
                                   const OutputSet& by_rows) override;
  void require_layers() const override;

  void check(const BatchArgs& args) const override;
  std::optional<int> follow(const BatchArgs& args, BatchContext& context,
                            const ReadLimits& limits) override;
  void begin(const BatchArgs& args, const BatchContext& context,
             const std::string& manifest) override;
  PoolEnd run_items(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                    std::atomic<bool>& stop) override;

 private:
  friend class RankRun;

  Team& team_;
  void (*const leave_rank_)(int code);
  TeamState state_ = TeamState::waiting;
  TeamReading reading_ = TeamReading::automatic;
  std::string start_;  ///< member 0's message, on the others
};

}  // namespace attn
