#include "attn/cli/batch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>

#include "attn/base/error.h"
#include "attn/cli/idle.h"
#include "attn/cli/values.h"

namespace attn {
namespace {

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

void add_inputs(CLI::App& app, BatchArgs& args) {
  app.add_option(
      "JOB", args.jobs,
      "job files (.json, .npz or .safetensors), folders of .json files, quoted patterns; - alone: "
      "jobs as lines of JSON on standard input");
  app.add_option("--files-from", args.files_from, "read names of job files, one a line; - is stdin")
      ->type_name("FILE")
      ->group("Jobs");
  app.add_flag("-0,--null", args.nul, "names in --files-from end in NUL (find -print0)")
      ->group("Jobs");
  app.add_option("--base", args.base, "job file that each job's own keys go on top of")
      ->type_name("FILE")
      ->group("Jobs");
  app.add_option("--shard", args.shard, "do every N-th job only, from the I-th on")
      ->type_name("I/N")
      ->group("Jobs");
}

void add_results(CLI::App& app, BatchArgs& args) {
  app.add_option("--out-dir", args.out_dir,
                 "folder for results and the manifest; default: lines of JSON on stdout, in order")
      ->type_name("DIR")
      ->group("Results");
  app.add_option("--name", args.name,
                 "what results are called: {stem}, {job} (with folders), {index}; default: {stem}")
      ->type_name("PATTERN")
      ->group("Results");
  args.format_option = app.add_option("--format", args.format,
                                      "npz (default), safetensors, json, csv, npy or folder")
                           ->check(one_of({"npz", "safetensors", "json", "csv", "npy", "folder"}))
                           ->type_name("WORD")
                           ->group("Results");
  app.add_flag("--force", args.force, "replace results and manifest that exist")->group("Results");
  app.add_flag("--no-clobber", args.no_clobber, "skip jobs whose results exist")->group("Results");
  app.add_flag("--durable", args.durable, "results outlast a power cut (fsync)")->group("Results");
  add_nan_option(app, args.nan);
}

void add_running(CLI::App& app, BatchArgs& args) {
  args.pool.threads = 0;
  take_whole(
      app.add_option("-j,--jobs", args.pool.threads, "jobs at a time; default: one a processor"), 1,
      1024)
      ->type_name("N")
      ->group("Running");
  app.add_flag("--fail-fast", args.pool.fail_fast, "start no job after a failure")
      ->group("Running");
  app.add_flag("--keep-going", args.keep_going, "do the other jobs after a failure (the default)")
      ->group("Running");
  take_number(app.add_option("--timeout", args.pool.timeout, "seconds that one job may take"),
              Sign::positive)
      ->type_name("X")
      ->group("Running");
  app.add_flag("--resume", args.resume, "skip jobs that the manifest shows as finished, unchanged")
      ->group("Running");
  app.add_option("--manifest", args.manifest, "default: manifest.ndjson in --out-dir")
      ->type_name("FILE")
      ->group("Running");
  const std::map<std::string, ProgressStyle> styles = {{"auto", ProgressStyle::automatic},
                                                       {"plain", ProgressStyle::plain},
                                                       {"none", ProgressStyle::none}};
  const auto store = [&args, styles](const std::string& text) { args.progress = styles.at(text); };
  app.add_option_function<std::string>("--progress", store,
                                       "auto (a bar on a terminal), plain (lines) or none")
      ->check(one_of({"auto", "plain", "none"}))
      ->type_name("WORD")
      ->group("Running");
  app.add_flag("--dry-run", args.dry_run,
               "show each job's outputs, memory and arithmetic as lines of JSON; compute nothing")
      ->group("Running");
  app.add_flag("--json", args.json, "events as lines of JSON on standard error")->group("Running");
}

}  // namespace

void add_batch_options(CLI::App& app, BatchArgs& args) {
  add_inputs(app, args);
  add_job_flags(app, args.flags);
  add_results(app, args);
  add_running(app, args);
  add_limit_options(app, args.limits);
}

namespace {

/// "-" is no file here, and one of that name hardly meant.
void refuse_dash(const char* flag, const std::string& path) {
  if (path == "-") usage(std::string(flag) + " -: expected a path; ./- is one of that name");
}

/// What is of no use without --out-dir, and was given.
void refuse_without_folder(const BatchArgs& args) {
  refuse_idle({{"--resume", args.resume},
               {"--manifest", !args.manifest.empty()},
               {"--force", args.force},
               {"--no-clobber", args.no_clobber},
               {"--durable", args.durable},
               {"--name", !args.name.empty()},
               {"--format", args.format_option->count() > 0}},
              "--out-dir");
}

}  // namespace

void check(const BatchArgs& args) {
  if (args.jobs.empty() && args.files_from.empty())
    usage("expected jobs: files, folders, '-' or --files-from; see 'attn batch --help'");
  if (args.jobs.size() > 1 && std::count(args.jobs.begin(), args.jobs.end(), "-") > 0)
    usage("'-', jobs on standard input, stands alone");
  if (args.lines())
    refuse_idle({{"--files-from", !args.files_from.empty()}}, "job files, not with '-'");
  if (args.files_from.empty()) refuse_idle({{"-0", args.nul}}, "--files-from");
  if (args.force && args.resume) usage("--resume goes on with what is there, --force begins anew");
  if (args.force && args.no_clobber) usage("--no-clobber keeps what --force replaces");
  if (args.pool.fail_fast && args.keep_going)
    usage("--fail-fast starts no job after a failure, --keep-going does the others");
  refuse_dash("--out-dir", args.out_dir);
  refuse_dash("--manifest", args.manifest);
  if (args.out_dir.empty()) refuse_without_folder(args);
}

}  // namespace attn
