#include "attn/cli/batch_options.h"

#include <algorithm>

#include "attn/base/error.h"

namespace attn {
namespace {

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

std::vector<Option> job_list_options(BatchArgs& args) {
  return in_group(
      "Jobs",
      {positional("JOB", args.jobs,
                  "job files (.json, .npz or .safetensors), folders, quoted patterns; "
                  "-: jobs as JSON lines on standard input"),
       text("--files-from", args.files_from, "FILE",
            "read names of job files, one per line; -: standard input"),
       flag("-0,--null", args.nul, "names in --files-from end in NUL (find -print0)"),
       text("--base", args.base, "FILE", "defaults for all jobs; a job's own keys override them"),
       text("--shard", args.shard, "I/N", "run only every N-th job, starting with the I-th")});
}

std::vector<Option> result_options(BatchArgs& args) {
  return in_group(
      "Results",
      {text("--out-dir", args.out_dir, "DIR",
            "folder for results and the manifest; default: JSON lines on stdout, in order"),
       text("--name", args.name, "PATTERN",
            "template for result names, with {stem}, {job} (with folders) or {index}; default: "
            "{stem}"),
       word("--format", args.format, {"npz", "safetensors", "json", "csv", "npy", "folder"},
            "npz (default), safetensors, json, csv, npy or folder"),
       flag("--force", args.force, "replace existing results and the manifest"),
       flag("--no-clobber", args.no_clobber, "skip jobs whose results exist"),
       flag("--durable", args.durable, "flush results to disk (fsync), to survive a power failure"),
       nan_option(args.nan)});
}

std::vector<Option> running_options(BatchArgs& args) {
  return in_group(
      "Running",
      {integer("-j,--jobs", args.pool.threads, {1, 1024}, "N",
               "number of jobs at a time; default: one per processor"),
       flag("--fail-fast", args.pool.fail_fast, "do not start further jobs after a failure"),
       flag("--keep-going", args.keep_going, "run the other jobs after a failure (the default)"),
       number("--timeout", args.pool.timeout, NumberRange::positive, "X",
              "time limit per job, in seconds"),
       flag("--resume", args.resume,
            "skip jobs that are finished and unchanged according to the manifest"),
       flag("--prune", args.prune, "remove results of job files that no longer exist"),
       text("--manifest", args.manifest, "FILE",
            "manifest file; default: manifest.ndjson in --out-dir"),
       word("--progress", args.progress,
            {{"auto", ProgressStyle::automatic},
             {"plain", ProgressStyle::plain},
             {"none", ProgressStyle::none}},
            "auto (a bar on a terminal), plain (lines) or none"),
       flag("--dry-run", args.dry_run,
            "show each job's outputs, memory and operation count as JSON lines; compute nothing"),
       flag("--json", args.json, "print events as JSON lines on stderr")});
}

/// "-" does not mean a standard stream here.
void refuse_dash(const char* flag, const std::string& path) {
  if (path == "-") usage(std::string(flag) + " -: expected a path; write ./- for a file named '-'");
}

}  // namespace

void add_batch_options(Command& command, BatchArgs& args) {
  args.pool.threads = 0;
  command.add(job_list_options(args));
  command.add(job_options(args.flags));
  command.add(result_options(args));
  command.add(running_options(args));
  add_limit_options(command, args.limits);
  command.hints = {
      {{"--threads", "--workers", "-n"}, "-j (--jobs) sets the number of concurrent jobs"},
      {{"-o", "--output"}, "use --out-dir for results in files"}};
  command.requirements = {
      {{"--files-from"}, "job files, not '-'", [&args] { return !args.lines(); }},
      {{"-0"}, "--files-from"},
      {{"--prune"}, "job files, not '-'", [&args] { return !args.lines(); }},
      {{"--prune"}, "--resume"},
      {{"--resume", "--manifest", "--force", "--no-clobber", "--durable", "--name", "--format"},
       "--out-dir"}};
  command.conflicts = {
      {"--resume", "--force"}, {"--force", "--no-clobber"}, {"--fail-fast", "--keep-going"}};
}

void check(const BatchArgs& args) {
  if (args.jobs.empty() && args.files_from.empty())
    usage("expected jobs: files, folders, '-' or --files-from; see 'attn batch --help'");
  if (args.jobs.size() > 1 && std::count(args.jobs.begin(), args.jobs.end(), "-") > 0)
    usage("'-' cannot be combined with other jobs");
  refuse_dash("--out-dir", args.out_dir);
  refuse_dash("--manifest", args.manifest);
}

}  // namespace attn
