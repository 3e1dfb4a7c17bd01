// attn batch: computes many jobs, given as files or as lines of JSON, on several threads or in
// several processes. Declares its options.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/batch_context.h"
#include "attn/batch/pool.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/command.h"
#include "attn/cli/executor.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/shared_options.h"

namespace attn {

/// The options as typed.
struct BatchArgs {
  std::vector<std::string> jobs, patterns;
  std::string files_from, base, out_dir, name, manifest, shard, status, summary;
  std::vector<std::string> statistics;
  std::string format = "npz";
  std::size_t bundle = 0;  ///< jobs of a file; 0: each job has its own
  bool nul = false, resume = false, force = false, no_clobber = false, durable = false;
  bool json = false, dry_run = false, keep_going = false, prune = false, isolate = false;
  LimitArgs limits;
  PoolOptions pool;  ///< threads: 0 means one per processor
  ProgressStyle progress = ProgressStyle::automatic;
  NanPolicy nan = NanPolicy::warn;
  JobFlags flags;
  Executor* executor = &local_executor();

  bool lines() const { return jobs.size() == 1 && jobs[0] == "-"; }
};

/// Adds all options and their requirements. `args` must outlive the parsing.
void add_batch_options(Command& command, BatchArgs& args);

/// Checks what the table of options cannot express. Errors: usage.
void check(const BatchArgs& args);

/// A digest of everything that affects all results: version, format, flags and base.
std::string options_digest(const BatchArgs& args, const BatchContext& context);

/// The workers of this process: what they do, without reports.
struct Workers {
  PoolOptions options;
  PoolCalls calls;
};
/// `manifest` is one that this process writes, or nullptr. The calls use all arguments.
Workers workers_of(const BatchArgs& args, const BatchContext& context, Manifest* manifest);

/// Ends the process while threads still compute.
[[noreturn]] void exit_now(Executor& executor, int code);

Command batch_command(Executor& executor);

}  // namespace attn
