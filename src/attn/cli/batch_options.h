// The options of `attn batch`.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/pool.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/limit_options.h"

namespace attn {

/// The options as typed.
struct BatchArgs {
  std::vector<std::string> jobs;
  std::string files_from, base, out_dir, name, manifest, shard;
  std::string format = "npz";
  bool nul = false, resume = false, force = false, no_clobber = false, durable = false;
  bool json = false, dry_run = false, keep_going = false, prune = false;
  LimitArgs limits;
  PoolOptions pool;  ///< threads: 0 means one per processor
  ProgressStyle progress = ProgressStyle::automatic;
  NanPolicy nan = NanPolicy::warn;
  JobFlags flags;

  bool lines() const { return jobs.size() == 1 && jobs[0] == "-"; }
};

/// Adds all options and their requirements. `args` must outlive the parsing.
void add_batch_options(Command& command, BatchArgs& args);

/// Errors: usage, for what the table of options cannot express.
void check(const BatchArgs& args);

}  // namespace attn
