// attn batch: many jobs, as files or as lines of JSON, on several threads.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "attn/batch/job_files.h"
#include "attn/batch/job_lines.h"
#include "attn/batch/manifest.h"
#include "attn/batch/pool.h"
#include "attn/batch/shard.h"
#include "attn/batch/work.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/command.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/limit_options.h"
#include "attn/core/fast.h"
#include "attn/io/bytes.h"
#include "attn/io/digest.h"
#include "attn/io/temporaries.h"
#include "attn/job/version.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

/// What was typed.
struct BatchArgs {
  std::vector<std::string> jobs;
  std::string files_from, base, out_dir, name, manifest, shard;
  std::string format = "npz";
  bool nul = false, resume = false, force = false, no_clobber = false, durable = false;
  bool json = false, dry_run = false;
  LimitArgs limits;
  PoolOptions pool;
  ProgressStyle progress = ProgressStyle::automatic;
  NanPolicy nan = NanPolicy::warn;
  JobFlags flags;
  const CLI::Option* format_option = nullptr;

  bool lines() const { return jobs.size() == 1 && jobs[0] == "-"; }
};

// Parts of --max-memory: files kept for jobs to come, and the longest line that is a job.
constexpr std::size_t kCachePart = 4, kLinePart = 8;

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

void check(const BatchArgs& args) {
  if (args.jobs.empty() && args.files_from.empty())
    usage("expected jobs: files, folders, '-' or --files-from; see 'attn batch --help'");
  if (args.jobs.size() > 1 && std::count(args.jobs.begin(), args.jobs.end(), "-") > 0)
    usage("'-', jobs on standard input, stands alone");
  if (args.lines() && !args.files_from.empty())
    usage("--files-from: goes with job files, not with '-'");
  if (args.nul && args.files_from.empty()) usage("-0: goes with --files-from");
  if (args.force && args.resume) usage("--resume goes on with what is there, --force begins anew");
  if (args.force && args.no_clobber) usage("--no-clobber keeps what --force replaces");
  if (!args.out_dir.empty()) return;
  if (args.resume || !args.manifest.empty()) usage("--resume and --manifest: go with --out-dir");
  if (args.force || args.no_clobber || args.durable || !args.name.empty() ||
      args.format_option->count() > 0)
    usage("--name, --format, --force, --no-clobber and --durable: go with --out-dir");
}

std::optional<Naming> naming_of(const BatchArgs& args) {
  if (args.out_dir.empty()) return std::nullopt;
  std::string folder = args.out_dir;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string pattern = !args.name.empty() ? args.name : args.lines() ? "{index}" : "{stem}";
  check_pattern(pattern, args.lines());
  return Naming{folder, pattern, args.format == "folder" ? "/" : "." + args.format};
}

/// Everything but their own inputs that the items' results depend on.
std::string options_digest(const BatchArgs& args, const Document& base) {
  std::string text = std::string(kVersion) + "\n" + args.format + "\n" +
                     std::to_string(static_cast<int>(args.nan)) + "\n";
  for (const Entry& entry : base.entries)
    if (entry.from_flag) text += entry.key + "=" + to_json(entry.value) + "\n";
  return digest_of(bytes_of(text));
}

std::string manifest_path(const BatchArgs& args, const Naming& naming, const Shard& shard) {
  if (!args.manifest.empty()) return args.manifest;
  const std::string part =
      shard.count == 1 ? ""
                       : "." + std::to_string(shard.index) + "-of-" + std::to_string(shard.count);
  return naming.folder + "/manifest" + part + ".ndjson";
}

std::unique_ptr<Manifest> open_manifest(const BatchArgs& args, const Naming& naming,
                                        const Shard& shard, const std::string& options) {
  std::error_code error;
  std::filesystem::create_directories(naming.folder, error);
  if (error) throw system_error(ErrorKind::cannot_create, naming.folder, error.value());
  const ManifestUse use = args.force    ? ManifestUse::replace
                          : args.resume ? ManifestUse::resume
                                        : ManifestUse::create;
  auto manifest =
      std::make_unique<Manifest>(manifest_path(args, naming, shard), use, options, args.durable);
  for (const std::string& run : manifest->earlier_runs()) remove_leftovers(naming.folder, run);
  return manifest;
}

std::unique_ptr<ItemSource> list_items(const BatchArgs& args, const std::optional<Naming>& naming,
                                       std::size_t longest_line, const std::atomic<bool>& stop) {
  if (args.lines()) return items_of_standard_input(longest_line, stop);
  std::vector<std::string> words = args.jobs;
  if (!args.files_from.empty()) {
    const std::vector<std::string> names = read_names(args.files_from, args.nul);
    words.insert(words.end(), names.begin(), names.end());
  }
  std::vector<JobFile> files = list_job_files(words, naming ? naming->folder : "");
  if (naming) refuse_clashes(files, *naming);
  return items_of(std::move(files));
}

Document base_of(const BatchArgs& args, FileCache& cache) {
  TensorFiles files(cache);
  Document base;
  if (!args.base.empty()) base = read_document(args.base, files);
  apply_job_flags(args.flags, base);
  return base;
}

/// Ends the program although threads still compute what nobody wants any more.
[[noreturn]] void end_at_once(int code) {
  remove_temporaries();
  std::fflush(nullptr);
  std::_Exit(code);
}

int batch(BatchArgs& args) {
  check(args);
  std::atomic<bool> stop = false;
  Common common;
  common.naming = naming_of(args);
  common.no_clobber = args.no_clobber;
  common.nan = args.nan;
  common.policy.force = args.force || args.resume;
  common.policy.durable = args.durable;
  common.policy.digest = true;
  common.dry_run = args.dry_run;
  const ReadLimits limits = limits_of(args.limits);
  Memory memory(limits.memory);
  common.memory = &memory;
  FileCache cache(limits.memory / kCachePart, limits);
  common.files = &cache;
  common.base_file = args.base;
  common.base = base_of(args, cache);
  const Shard shard = parse_shard(args.shard);
  const auto source =
      shard_of(list_items(args, common.naming, limits.memory / kLinePart, stop), shard);
  std::unique_ptr<Manifest> manifest;
  if (common.naming && !args.dry_run)
    manifest = open_manifest(args, *common.naming, shard, options_digest(args, common.base));
  if (args.resume) common.earlier = manifest.get();
  read_numbers(common.base);

  BatchReport report({args.progress, args.json, is_quiet(), source->count(),
                      manifest ? printable(manifest->path()) : "the results"});
  std::optional<OutputFile> results;
  if (manifest == nullptr) results.emplace("-", OutputPolicy{});
  PoolTasks tasks;
  // Processors that no worker has are for the kernels.
  const std::size_t processors = std::max(1u, std::thread::hardware_concurrency());
  tasks.begin = [threads = std::max<std::size_t>(1, processors / args.pool.threads)] {
    set_threads(threads);
  };
  tasks.work = [&](const Item& item, const Claim& claim) { return work_on(item, common, claim); };
  tasks.report = [&](const Outcome& outcome) {
    report.item(outcome);
    if (results) {
      results->write(outcome.status == Status::failed ? failure_json(outcome) + "\n"
                                                      : outcome.text);
      results->flush();
    } else if (outcome.status != Status::skipped) {
      manifest->add(outcome);
    }
  };
  tasks.tick = [&] { report.tick(); };
  args.pool.in_order = manifest == nullptr;
  const PoolEnd end = run_pool(*source, args.pool, tasks, stop);
  report.end();
  if (results && !end.fault) results->commit();
  const int code = end.fault ? tell_fault(end.fault) : report.failed() > 0 ? 3 : 0;
  if (end.overdue > 0) end_at_once(code);
  return code;
}

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
  args.format_option =
      app.add_option("--format", args.format,
                     "npz (default), safetensors, json, csv, npy or folder")
          ->check(CLI::IsMember({"npz", "safetensors", "json", "csv", "npy", "folder"}))
          ->type_name("WORD")
          ->group("Results");
  app.add_flag("--force", args.force, "replace results and manifest that exist")->group("Results");
  app.add_flag("--no-clobber", args.no_clobber, "skip jobs whose results exist")->group("Results");
  app.add_flag("--durable", args.durable, "results outlast a power cut (fsync)")->group("Results");
  add_nan_option(app, args.nan);
}

void add_running(CLI::App& app, BatchArgs& args) {
  args.pool.threads = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("-j,--jobs", args.pool.threads, "jobs at a time; default: one a processor")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group("Running");
  app.add_flag("--fail-fast,!--keep-going", args.pool.fail_fast,
               "start no job after a failure; default: keep going")
      ->group("Running");
  app.add_option("--timeout", args.pool.timeout, "seconds that one job may take")
      ->check(CLI::PositiveNumber)
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
      ->check(CLI::IsMember({"auto", "plain", "none"}))
      ->type_name("WORD")
      ->group("Running");
  app.add_flag("--dry-run", args.dry_run,
               "show each job's outputs, memory and arithmetic as lines of JSON; compute nothing")
      ->group("Running");
  app.add_flag("--json", args.json, "events as lines of JSON on standard error")->group("Running");
}

}  // namespace

Action add_batch(CLI::App& app) {
  const auto args = std::make_shared<BatchArgs>();
  app.description(
      "Computes attention for many jobs, several at a time.\n\n"
      "Example:\n"
      "  attn batch jobs/ --out-dir results --resume\n"
      "  attn batch 'jobs/*.json' --base common.json --causal --out-dir results --format json\n"
      "  generate-jobs | attn batch - --wq W_Q.npy > results.ndjson");
  add_inputs(app, *args);
  add_job_flags(app, args->flags);
  add_results(app, *args);
  add_running(app, *args);
  add_limit_options(app, args->limits);
  return [args] { return batch(*args); };
}

}  // namespace attn
