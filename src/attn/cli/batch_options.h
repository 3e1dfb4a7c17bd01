// The options of `attn batch`.
#pragma once

#include <string>
#include <vector>

#include "attn/batch/pool.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/limit_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn {

/// What was typed.
struct BatchArgs {
  std::vector<std::string> jobs;
  std::string files_from, base, out_dir, name, manifest, shard;
  std::string format = "npz";
  bool nul = false, resume = false, force = false, no_clobber = false, durable = false;
  bool json = false, dry_run = false, keep_going = false;
  LimitArgs limits;
  PoolOptions pool;  ///< threads: 0 is one a processor
  ProgressStyle progress = ProgressStyle::automatic;
  NanPolicy nan = NanPolicy::warn;
  JobFlags flags;
  const CLI::Option* format_option = nullptr;

  bool lines() const { return jobs.size() == 1 && jobs[0] == "-"; }
};

/// Declares them all; `args` outlives the parsing.
void add_batch_options(CLI::App& app, BatchArgs& args);

/// Errors: usage, for options that contradict or miss each other.
void check(const BatchArgs& args);

}  // namespace attn
