// Who computes the jobs of attn run and attn batch: this process alone, as in `attn`, or several
// (in apps).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/batch/pool.h"
#include "attn/cli/option.h"
#include "attn/io/file_cache.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/output_target.h"

namespace attn {

struct BatchArgs;
struct BatchContext;
struct RunArgs;

/// A job of attn run, planned for this process alone. The functions are called in this order.
class PlannedRun {
 public:
  /// The arguments must outlive this object.
  PlannedRun(const RunArgs& args, const PreparedJob& prepared) : args_(args), prepared_(prepared) {}
  PlannedRun(const PlannedRun&) = delete;
  PlannedRun& operator=(const PlannedRun&) = delete;
  virtual ~PlannedRun() = default;

  /// The memory of this process.
  virtual MemoryEstimate memory() const { return MemoryEstimate(prepared_.plan); }
  /// What --dry-run prints in addition: lines, or members of a JSON object, each after a comma.
  virtual std::string description(bool) const { return ""; }
  /// Called before the output files are opened.
  virtual void claim(const std::vector<OutputPath>&) {}
  /// As attn::execute(), but shows the progress. `files` has read the job.
  virtual Execution execute(const ExecutionRequest& request, const TensorFiles& files,
                            RowReceiver& receiver);

 protected:
  const RunArgs& args_;
  const PreparedJob& prepared_;
};

/// The part of a machine that a process has.
struct ProcessShare {
  bool is_alone = true;       ///< no other process computes the same command
  std::size_t processes = 1;  ///< that share the machine's memory
  std::size_t threads = 0;    ///< the default number; 0: one for each processor
};

/// The functions of this class are those of one process. Others may divide the work of a command
/// among several processes, which all run the same command line: one leads, and the others follow.
class Executor {
 public:
  explicit Executor(const ProcessShare& process_share = {}) : share_(process_share) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  const ProcessShare& share() const { return share_; }
  /// Calls the action of a command.
  virtual int act(const std::function<int()>& action) { return action(); }
  /// Called before the process ends with this code while threads compute.
  virtual void leave(int) {}

  /// Further options of attn run.
  virtual std::vector<Option> run_options() { return {}; }
  /// In a process that follows: does its part of the job and returns the exit code.
  virtual std::optional<int> follow(const RunArgs&) { return std::nullopt; }
  /// `by_rows` are the outputs that can be written while they are computed; `prepared` is planned
  /// so for this process.
  virtual std::unique_ptr<PlannedRun> plan(const RunArgs& args, const Job& job,
                                           PreparedJob& prepared, const OutputSet& by_rows);
  /// Errors: usage, if it does not compute several layers.
  virtual void require_layers() const {}

  /// Errors: usage, for options that it does not have.
  virtual void check(const BatchArgs&) const {}
  /// In a process that follows: does its part of the batch and returns the exit code.
  virtual std::optional<int> follow(const BatchArgs&, BatchContext&, const ReadLimits&) {
    return std::nullopt;
  }
  /// Called before run_items(), with the path of the manifest, or "".
  virtual void begin(const BatchArgs&, const BatchContext&, const std::string&) {}
  /// As run_pool().
  virtual PoolEnd run_items(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                            std::atomic<bool>& stop) {
    return run_pool(source, options, calls, stop);
  }

 private:
  const ProcessShare share_;
};

/// This process alone.
Executor& local_executor();

}  // namespace attn
