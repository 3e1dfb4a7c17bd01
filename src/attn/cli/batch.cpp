#include "attn/cli/batch.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "attn/attention/machine.h"
#include "attn/base/error.h"
#include "attn/base/memory_limit.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/batch/batch_context.h"
#include "attn/batch/bundle.h"
#include "attn/batch/file_patterns.h"
#include "attn/batch/item.h"
#include "attn/batch/item_output.h"
#include "attn/batch/jobs.h"
#include "attn/batch/manifest.h"
#include "attn/batch/pool.h"
#include "attn/batch/process_pool.h"
#include "attn/batch/prune.h"
#include "attn/batch/replaced_inputs.h"
#include "attn/batch/sandbox.h"
#include "attn/batch/summary.h"
#include "attn/batch/work.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/batch_status.h"
#include "attn/cli/shared_options.h"
#include "attn/cli/terminal.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/format.h"
#include "attn/io/json_write.h"
#include "attn/io/output_path.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "attn/io/used_files.h"
#include "attn/problem/input_table.h"
#include "attn/problem/output_table.h"
#include "attn/problem/threads.h"

namespace attn {
namespace {

bool is_archive(const BatchArgs& args) {
  const FormatRow* format = format_named(args.format);
  return format != nullptr && format->is_archive();
}

std::vector<Option> job_list_options(BatchArgs& args) {
  return in_group(
      "Jobs",
      {positional("JOB", args.jobs,
                  "job files (.json, .npz or .safetensors), folders, quoted patterns; "
                  "-: jobs as JSON lines on standard input"),
       text("--files-from", args.files_from, "FILE",
            "read names of job files, one per line; -: standard input"),
       flag("-0,--null", args.nul, "names in --files-from end in NUL (find -print0)"),
       common(
           list("--pattern", args.patterns, "[KEY=]FILE,...",
                "jobs from corresponding files, such as q_{}.npy,k_{}.npy,v_{}.npy: {} is the same "
                "text in all of them; the first three are Q, K and V; others need a key: "
                "mask=mask_{}.npy",
                ',')),
       common(text("--base", args.base, "FILE",
                   "defaults for all jobs; a job's own keys override them")),
       common(text(
           "--shard", args.shard, "I/N|auto",
           "run only every N-th job, starting with the I-th; auto: I and N from the variables of "
           "an array job (Slurm, SGE, AWS Batch, MPI); auto/N: only I from them (also PBS, LSF, "
           "Kubernetes)"))});
}

std::vector<Option> result_options(BatchArgs& args) {
  return in_group(
      "Results",
      {common(text("--out-dir", args.out_dir, "DIR",
                   "folder for results and the manifest; default: JSON lines on stdout, in order")),
       common(
           text("--name", args.name, "PATTERN",
                "template for result names, with {stem}, {job} (with folders) or {index}; default: "
                "{stem}")),
       common(word("--format", args.format, format_names({}, {"folder"}),
                   join_or(format_names({}, {"folder"})) + "; default: npz")),
       integer("--bundle", args.bundle, {1, kMaxBundle}, "N",
               "write the results of N jobs to one .npz or .safetensors file"),
       common(
           flag("--force", args.force, "replace existing results, the manifest and the summary")),
       flag("--no-clobber", args.no_clobber, "skip jobs whose results exist"),
       common(
           text("--summary", args.summary, "FILE",
                "write a row for each job to a .csv or .ndjson file: status, seconds, shapes and "
                "statistics of its outputs")),
       suggesting(list("--statistics", args.statistics, "NAME,...",
                       "statistics in the summary: " + join(statistic_names(), ", ") +
                           " (of weights); default: all",
                       ','),
                  statistic_names()),
       flag("--durable", args.durable, "flush results to disk (fsync), to survive a power failure"),
       nan_option(args.nan)});
}

std::vector<Option> running_options(BatchArgs& args) {
  return in_group(
      "Running",
      {common(integer("-j,--jobs", args.pool.threads, {1, 1024}, "N",
                      "number of jobs at a time; default: one per processor")),
       common(flag(
           "--isolate", args.isolate,
           "run each worker as a process with reduced privileges; a crash fails only the job that "
           "was running")),
       flag("--fail-fast", args.pool.fail_fast, "do not start further jobs after a failure"),
       flag("--keep-going", args.keep_going, "run the other jobs after a failure (the default)"),
       common(number("--timeout", args.pool.timeout, NumberRange::positive, kSeconds,
                     "time limit per job")),
       common(flag("--resume", args.resume,
                   "skip jobs that are finished and unchanged according to the manifest")),
       flag("--prune", args.prune, "remove results of job files that no longer exist"),
       text("--manifest", args.manifest, "FILE",
            "manifest file; default: manifest.ndjson in --out-dir"),
       progress_option(args.progress),
       common(flag(
           "--dry-run", args.dry_run,
           "show each job's outputs, memory and operation count as JSON lines; compute nothing")),
       common(text(
           "--status", args.status, "DIR",
           "print which jobs in the manifests of DIR are done, failed and missing, and the shards "
           "to run again; compute nothing; give the jobs too if their list has changed")),
       common(flag("--json", args.json,
                   "print events as JSON lines on stderr; with --status, the status as JSON"))});
}

/// Refuses "-", which does not mean a standard stream for this option.
void refuse_dash(const char* flag, const std::string& path) {
  if (path == "-")
    fail_usage(std::string(flag) + " -: expected a path; write ./- for a file named '-'");
}

}  // namespace

void add_batch_options(Command& command, BatchArgs& args) {
  args.pool.threads = 0;
  command.add(job_list_options(args));
  std::vector<Option> of_jobs = job_options(args.flags);
  for (Option& option : of_jobs) option.is_common = option.has_name("--outputs");
  command.add(std::move(of_jobs));
  command.add(result_options(args));
  command.add(running_options(args));
  add_limit_options(command, args.limits);
  command.hints = {{{"--threads", "--workers", "--parallel", "--processes", "-n", "-w"},
                    "-j (--jobs) sets the number of concurrent jobs"},
                   {{"-o", "--output"}, "use --out-dir for results in files"}};
  command.requirements = {
      {{"--files-from"}, "job files, not '-'", [&args] { return !args.lines(); }},
      {{"-0"}, "--files-from"},
      {{"--prune"}, "job files, not '-'", [&args] { return !args.lines(); }},
      {{"--statistics"}, "--summary"},
      {{"--prune"}, "--resume"},
      {{"--bundle"},
       "--format " + listed_names(&FormatRow::is_archive),
       [&args] { return is_archive(args); }},
      {{"--resume", "--manifest", "--no-clobber", "--durable", "--name", "--format", "--bundle"},
       "--out-dir"},
      {{"--force"}, "--out-dir or --summary", [&args] {
         return !args.out_dir.empty() || !args.summary.empty();
       }}};
  command.sole_options = {{"--status",
                           {"JOB", "--files-from", "--null", "--pattern", "--json", "--quiet",
                            "--max-memory", "--max-expand"}}};
  command.conflicts = {{"--summary", "--dry-run"},
                       {"--pattern", "JOB"},
                       {"--pattern", "--files-from"},
                       {"--pattern", "--only", "it names the inputs"},
                       {"--resume", "--force"},
                       {"--force", "--no-clobber"},
                       {"--fail-fast", "--keep-going"},
                       {"--bundle", "--no-clobber", "it has an effect on whole files only"},
                       {"--bundle", "--prune", "results cannot be removed from a bundle"}};
}

void check(const BatchArgs& args) {
  args.executor->check(args);
  if (!args.status.empty() && args.lines()) fail_usage("--status: expected job files, not '-'");
  if (args.jobs.empty() && args.files_from.empty() && args.patterns.empty() && args.status.empty())
    fail_usage(
        "expected jobs: files, folders, '-', --files-from or --pattern; see 'attn batch --help'");
  if (args.jobs.size() > 1 && std::count(args.jobs.begin(), args.jobs.end(), "-") > 0)
    fail_usage("'-' cannot be combined with other jobs");
  refuse_dash("--out-dir", args.out_dir);
  refuse_dash("--manifest", args.manifest);
  refuse_dash("--status", args.status);
  refuse_dash("--summary", args.summary);
  for (const std::string& name : args.statistics)
    if (std::count(statistic_names().begin(), statistic_names().end(), name) == 0)
      fail_usage("--statistics: unknown '" + printable(name) + "'" +
                 did_you_mean(name, statistic_names(), NameKind::other) + "; expected " +
                 join_or(statistic_names()));
}

namespace {

constexpr int kSomeFailed = 3;               // exit code
constexpr std::size_t kWaitingFraction = 8;  // of --max-memory, for results that wait to be written

ReportOptions report_options(const BatchArgs& args, const ItemSource& source,
                             const Manifest* manifest) {
  return {.style = args.progress,
          .json = args.json,
          .quiet = is_quiet(),
          .dry_run = args.dry_run,
          .total = source.count(),
          .where = manifest != nullptr ? printable(manifest->path()) : "the results",
          .resumable = manifest != nullptr};
}

/// Those that the workers of this process use.
std::size_t processors_of(const BatchArgs& args) {
  const std::size_t threads = args.executor->share().threads;
  return threads == 0 ? available_processors() : threads;
}

std::size_t worker_count(const BatchArgs& args) {
  return args.pool.threads == 0 ? processors_of(args) : args.pool.threads;
}

/// `with_failures`: failed jobs have a line, too.
void write_results(OutputFile& file, std::span<const Outcome> outcomes, bool with_failures) {
  for (const Outcome& outcome : outcomes) {
    if (outcome.status != Status::failed)
      file.write(outcome.text);
    else if (with_failures)
      file.write(failure_json(outcome) + "\n");
  }
  file.flush();
}

/// {"job": NAME, "item": N, "resume": "remove", "outputs": [FILE]}
std::string dry_run_json(const Outcome& removed) {
  std::string text = "{" + identity_members(removed) +
                     ",\"item\":" + std::to_string(removed.number) +
                     ",\"resume\":\"remove\",\"outputs\":[";
  for (const auto& [file, digest] : removed.outputs)
    text += (text.back() == '[' ? "" : ",") + json_quoted(text_of_name(file));
  return text + "]}\n";
}

/// Without `manifest`, this is a dry run, which writes what would be removed to `results`.
void prune(const BatchContext& context, Manifest* manifest, std::optional<OutputFile>& results,
           BatchReport& report) {
  const PruneReport pruned =
      prune_results(*context.earlier, *context.prune_except, *context.naming, manifest == nullptr);
  if (manifest != nullptr) manifest->add(pruned.removed);
  for (const Outcome& outcome : pruned.removed) {
    report.item(outcome);
    if (manifest == nullptr) results->write(dry_run_json(outcome));
  }
  for (const std::string& message : pruned.kept) report.print_line(message);
}

std::exception_ptr exception_from(const std::function<void()>& step) {
  try {
    step();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

/// Whether the reader of standard output has closed it.
bool is_broken_pipe(const std::exception_ptr& fault) {
  try {
    if (fault) std::rethrow_exception(fault);
  } catch (const BrokenPipe&) {
    return true;
  } catch (...) {  // reported by report_exception()
  }
  return false;
}

/// Called in each worker process. It keeps no copy of the manifest's descriptor, which would hold
/// the lock if only the main process is killed.
void begin_worker_process(const BatchContext& context, Manifest* manifest) {
  if (manifest != nullptr) manifest->close();
  close_files_being_written();  // of the main process: the summary and bundles
  set_modes_at_creation();
  std::vector<std::string> folders;
  if (context.naming && context.naming->bundle == 0 && !context.dry_run)
    folders.push_back(context.naming->folder);
  enter_sandbox(folders);
}

}  // namespace

void exit_now(Executor& executor, int code) {
  executor.leave(code);
  remove_temp_files();
  std::fflush(nullptr);
  std::_Exit(code);
}

Workers workers_of(const BatchArgs& args, const BatchContext& context, Manifest* manifest) {
  Workers workers{args.pool, {}};
  workers.options.threads = worker_count(args);
  workers.options.max_waiting =
      std::min(args.pool.max_waiting, context.files->limits().memory / kWaitingFraction);
  // Processors without a worker are used by the kernels.
  const std::size_t threads =
      std::max<std::size_t>(1, processors_of(args) / workers.options.threads);
  workers.calls.begin = [&args, &context, manifest, threads] {
    set_memory_checks(false);
    set_threads(threads);
    if (args.isolate) begin_worker_process(context, manifest);
  };
  workers.calls.work = [&context](const Item& item, const CompletionToken& token,
                                  std::string text_buffer) {
    return work_on(item, context, token, std::move(text_buffer));
  };
  return workers;
}

namespace {

/// Warns about bundles that an earlier run with a longer list of jobs wrote.
void warn_of_later_bundles(const BatchContext& context, const ItemSource& source,
                           BatchReport& report) {
  const std::optional<std::size_t> jobs = source.count_of_batch();
  if (context.earlier == nullptr || !jobs) return;
  const Naming& naming = *context.naming;
  std::error_code ignored;
  for (std::size_t number = *jobs == 0 ? 1 : naming.bundle_of(*jobs) + 1;
       context.earlier->has_output(naming.bundle_file(number)); ++number) {
    const std::string path = naming.folder + "/" + naming.bundle_file(number);
    if (std::filesystem::exists(path, ignored))
      report.print_line("warning: " + printable(path) +
                        ": has results of jobs after the end of the list");
  }
}

/// Results go to files, which `manifest` records, or to standard output if it is nullptr. Returns
/// the exit code: 3 if some jobs failed, otherwise 0 or that of the error that ended the batch.
/// Sets `stop` to start no more jobs. Ends the process if threads still compute jobs over their
/// time limit.
int run_items(const BatchArgs& args, const BatchContext& context, ItemSource& source,
              Manifest* manifest, SummaryFile* summary, std::atomic<bool>& stop) {
  set_memory_checks(false);  // of this thread: no job may end the others
  const bool is_recorded = manifest != nullptr;
  BatchReport report(report_options(args, source, manifest));
  std::optional<OutputFile> results;
  if (!is_recorded) results.emplace("-", OutputPolicy{});
  const bool results_on_terminal = !is_recorded && prints_to_terminal();
  std::optional<BundleWriter> bundles;
  if (is_recorded && args.bundle > 0)
    bundles.emplace(context, *manifest, context.files->limits().memory / kWaitingFraction);
  auto [pool, calls] = workers_of(args, context, manifest);
  pool.in_order = !is_recorded || bundles.has_value();
  calls.report = [&](std::span<const Outcome> outcomes) {
    for (const Outcome& outcome : outcomes) report.item(outcome);
    const bool had_bar = results_on_terminal && report.clear_bar();
    try {
      if (bundles)
        bundles->add(outcomes);
      else
        is_recorded ? manifest->add(outcomes)
                    : write_results(*results, outcomes, !context.shapes_only);
    } catch (...) {
      for (const Outcome& outcome : outcomes) report.take_back(outcome);
      throw;
    }
    if (summary)
      for (const Outcome& outcome : outcomes) summary->add(outcome);
    if (had_bar) report.draw_bar();
  };
  calls.tick = [&] { report.tick(); };
  PoolEnd end = args.isolate ? run_process_pool(source, pool, calls, *context.memory, stop)
                             : args.executor->run_items(source, pool, calls, stop);
  if (!end.fault && bundles)
    end.fault = exception_from([&] {
      if (stop)
        report.take_back_done(bundles->abandon());
      else
        bundles->finish();
    });
  if (!end.fault && bundles && !stop && !args.json && !is_quiet())
    warn_of_later_bundles(context, source, report);
  if (!end.fault && context.prune_except && !stop)
    end.fault = exception_from([&] { prune(context, manifest, results, report); });
  if (!end.fault)
    end.fault = exception_from([&] {
      if (!is_recorded) return results->commit();
      if (!source.count())  // lines, which are now counted
        if (const auto jobs = source.count_of_batch()) manifest->add_job_count(*jobs);
      manifest->close();
    });
  if (!end.fault && summary) end.fault = exception_from([&] { summary->commit(); });
  if (!end.fault && summary)
    report.skipped_without_statistics(summary->skipped_without_statistics());
  if (context.shapes_only && !is_quiet())
    report.print_line(
        "on a terminal, only the shapes of results are printed; --out-dir DIR stores them");
  const int code = end.fault ? report.fault(end.fault) : report.failed() > 0 ? kSomeFailed : 0;
  if (!is_broken_pipe(end.fault)) report.end(code);
  if (end.overdue > 0) exit_now(*args.executor, code);
  return code;
}

// Fractions of --max-memory: for shared input files, for the longest line, and for each of two
// bundles of an earlier run.
constexpr std::size_t kCacheFraction = 4, kLineFraction = 8, kBundleFraction = 8;

std::optional<Naming> naming_of(const BatchArgs& args) {
  if (args.out_dir.empty()) return std::nullopt;
  std::string folder = args.out_dir;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string pattern = !args.name.empty() ? args.name : args.lines() ? "{index}" : "{stem}";
  check_pattern(pattern, args.lines());
  return Naming{folder, pattern, args.format == "folder" ? "/" : "." + args.format, args.bundle};
}

}  // namespace

std::string options_digest(const BatchArgs& args, const BatchContext& context) {
  std::string text = std::string(kVersion) + "\n" + args.format + "\n" +
                     std::to_string(static_cast<int>(args.nan)) + "\n";
  if (!args.base.empty())
    text += json_quoted(args.base) + "=" + context.files->file(args.base)->bytes().digest() + "\n";
  for (const std::string& key : args.flags.only) text += "only=" + key + "\n";
  for (const std::string& pattern : args.patterns) text += "pattern=" + pattern + "\n";
  for (const Entry& entry : context.base.entries)
    if (entry.from_flag) text += entry.key + "=" + to_json(entry.value) + "\n";
  return digest_of(bytes_of(text));
}

namespace {

std::string manifest_path(const BatchArgs& args, const Naming& naming, const Shard& shard) {
  if (!args.manifest.empty()) return args.manifest;
  const std::string part = shard.count == 1 ? "" : "." + text_of(shard, "-of-");
  return naming.folder + "/manifest" + part + ".ndjson";
}

/// Errors: cannot_create, if the manifest would overwrite an input.
void refuse_input(const std::string& manifest, const std::string& input) {
  std::error_code ignored;
  if (std::filesystem::equivalent(manifest, input, ignored))
    throw Error(ErrorKind::cannot_create,
                printable(manifest) + ": is an input and cannot be overwritten");
}

std::unique_ptr<Manifest> open_manifest(const BatchArgs& args, const Naming& naming,
                                        const std::string& path, const RunDescription& run,
                                        std::size_t max_bytes, ScopedDirectories& folders) {
  if (args.resume || args.no_clobber)
    Manifest::require_bundle_size(path, args.manifest.empty() ? naming.folder : "", run.bundle);
  std::error_code ignored;
  if (args.dry_run) {
    if (std::filesystem::is_directory(naming.folder, ignored)) confine_outputs(naming.folder);
    auto manifest = std::make_unique<Manifest>(path, ManifestUse::read_only, run, false, max_bytes);
    if (args.manifest.empty()) manifest->read_shards(naming.folder, max_bytes);
    return manifest;
  }
  const ManifestUse use = args.force                       ? ManifestUse::replace
                          : args.resume || args.no_clobber ? ManifestUse::resume
                                                           : ManifestUse::create;
  auto manifest = std::make_unique<Manifest>(path, use, run, args.durable, max_bytes);
  folders.keep();
  if (!manifest->earlier_runs().empty()) remove_leftovers(naming.folder, manifest->earlier_runs());
  if (args.resume && args.manifest.empty()) manifest->read_shards(naming.folder, max_bytes);
  return manifest;
}

/// Errors: usage and cannot_create, if outputs would overwrite each other, inputs, or existing
/// files without a flag that allows it; busy, if another running batch writes these results.
void refuse_overwriting(const std::vector<JobFile>& files, const BatchArgs& args,
                        const BatchContext& context, const Shard& shard,
                        const std::string& manifest) {
  const Naming& naming = *context.naming;
  refuse_clashes(files, naming);
  refuse_name_of_result(files, naming, "--summary", args.summary);
  if (!args.dry_run) refuse_name_of_result(files, naming, "--manifest", args.manifest);
  ExistingResults existing = existing_results(files, naming, shard);
  if (args.force) {
    for (const std::string& output : {args.summary, manifest})
      if (const auto file = id_of_file(output)) existing.files.emplace(*file, output);
    refuse_replaced_inputs(files, context, shard, std::move(existing.files));
  }
  const bool expected = args.force || args.resume || args.no_clobber || args.dry_run;
  if (existing.count == 0 || expected) return;
  Manifest::require_unlocked(manifest);
  const std::size_t more = existing.count - 1;
  const std::string others =
      more == 0 ? "" : " and " + std::to_string(more) + (more == 1 ? " other" : " others");
  throw Error(ErrorKind::cannot_create,
              printable(existing.first) + others +
                  (more == 0 ? ": already exists" : ": already exist") +
                  "; --force replaces, --no-clobber skips existing results, "
                  "--resume continues an earlier run");
}

/// The files that the command line names. `except` is the output folder.
std::vector<JobFile> job_files(const BatchArgs& args, const std::string& except,
                               std::size_t max_memory) {
  if (!args.patterns.empty()) return jobs_of_patterns(parse_file_patterns(args.patterns));
  std::vector<std::string> words = args.jobs;
  if (!args.files_from.empty()) {
    const std::vector<std::string> names = read_names(args.files_from, args.nul, max_memory);
    words.insert(words.end(), names.begin(), names.end());
  }
  std::vector<std::string> notes;
  std::vector<JobFile> files = list_job_files(words, except, notes);
  if (!args.json)
    for (const std::string& text : notes) note(text);
  return files;
}

/// `manifest` is "" if none is written.
std::unique_ptr<ItemSource> list_items(const BatchArgs& args, BatchContext& context,
                                       const Shard& shard, const std::string& manifest,
                                       std::size_t max_memory, const std::atomic<bool>& stop) {
  const std::optional<Naming>& naming = context.naming;
  if (args.lines()) return items_of_standard_input(max_memory / kLineFraction, stop);
  std::vector<JobFile> files = job_files(args, naming ? naming->folder : "", max_memory);
  if (naming) {
    refuse_overwriting(files, args, context, shard, manifest);
    if (!files.empty()) require_one_output(context, files.front());
  }
  if (args.prune) context.prune_except = files;
  if (std::error_code ignored; std::filesystem::exists(manifest, ignored))
    for (const JobFile& file : files) refuse_input(manifest, file.path);
  return items_of(std::move(files));
}

Document base_of(const BatchArgs& args, FileCache& cache) {
  TensorFiles files(cache);
  Document base;
  if (!args.base.empty()) base = read_document(args.base, files);
  apply_job_flags(args.flags, base, files.budget());
  for (Entry& entry : base.entries) entry.shared = true;
  return base;
}

/// Errors: usage, for a name that is not an output or input of any job.
void check_output_names(const Document& base) {
  const Entry* const entry = base.find("outputs");
  const auto names = entry ? entry->value.get<JsonArray>() : nullptr;
  if (names == nullptr) return;
  std::vector<std::string> unknown;
  for (const Json& name : *names) {
    const auto text = name.get<std::string>();
    if (text && !output_named(*text) && !input_named(*text)) unknown.push_back(*text);
  }
  requests_named(unknown, {});
}

/// For each bundle of an earlier run.
ReadLimits limits_of_bundle(ReadLimits limits) {
  limits.memory /= kBundleFraction;
  return limits;
}

BatchContext context_of(const BatchArgs& args) {
  BatchContext context;
  context.naming = naming_of(args);
  context.base_file = args.base;
  context.only = selected_keys(args.flags.only);
  context.no_clobber = args.no_clobber;
  context.nan = args.nan;
  context.has_summary = !args.summary.empty();
  if (context.has_summary)
    context.statistics = args.statistics.empty() ? statistic_names() : args.statistics;
  context.records_inputs = context.naming || args.json;
  context.dry_run = args.dry_run;
  // With others, a library may connect the standard output to a terminal of its own.
  context.shapes_only = !context.naming && !args.dry_run && !args.json &&
                        args.executor->share().is_alone && prints_to_terminal();
  context.policy.force = args.force;
  context.policy.durable = args.durable;
  context.policy.digest = true;
  context.policy.nameless = true;
  return context;
}

/// Of --max-memory, for the bytes of manifests. The index of their lines takes the rest.
constexpr std::size_t kManifestFraction = 8;

int show_status(const BatchArgs& args) {
  const std::size_t max_memory = limits_of(args.limits, *args.executor).memory;
  StatusRequest request{.folder = args.status,
                        .json = args.json,
                        .quiet = is_quiet(),
                        .max_memory = max_memory / kManifestFraction};
  if (!args.jobs.empty() || !args.files_from.empty() || !args.patterns.empty())
    request.jobs = job_files(args, args.status, max_memory);
  return print_status(request);
}

int run_batch(const BatchArgs& args) {
  check(args);
  if (!args.status.empty()) return show_status(args);
  const ReadLimits limits = limits_of(args.limits, *args.executor);
  return_freed_memory_to_system();
  const bool replaces_files = args.force || args.resume;
  record_used_files(replaces_files);
  if (args.isolate && replaces_files) share_noted_inputs();
  MemoryBudget memory(limits.memory - limits.memory / kCacheFraction);
  const std::size_t caches = args.isolate ? worker_count(args) : 1;
  FileCache cache(limits.memory / kCacheFraction / caches, limits, args.lines());
  BatchContext context = context_of(args);
  KeptJobs kept_jobs;
  context.memory = &memory;
  context.files = &cache;
  context.kept_jobs = &kept_jobs;
  context.base = base_of(args, cache);
  check_values(context.base);
  check_output_names(context.base);
  read_numbers(context.base);
  ScopedDirectories folders;
  context.folders = &folders;
  BundleCache bundles(limits_of_bundle(limits));
  context.bundles = &bundles;
  if (const std::optional<int> code = args.executor->follow(args, context, limits)) return *code;
  Shard shard = parse_shard(args.shard, args.executor->share().is_alone);
  shard.block = std::max<std::size_t>(args.bundle, 1);
  std::atomic<bool> stop = false;
  const bool has_manifest = context.naming && (args.resume || !args.dry_run);
  const std::string path = has_manifest ? manifest_path(args, *context.naming, shard) : "";
  const auto source = shard_of(list_items(args, context, shard, path, limits.memory, stop), shard);
  for (const std::string& input : {args.base, args.files_from}) refuse_input(path, input);
  if (context.has_summary) {
    const auto normal = [](const std::string& name) {
      return std::filesystem::path(name + "/").lexically_normal();
    };
    if (context.naming && normal(args.summary) == normal(context.naming->folder))
      fail_usage("--summary " + printable(args.summary) + ": is the output folder");
  }
  if (has_manifest && !args.dry_run) {
    folders.make_with_parents(context.naming->folder, args.durable);
    confine_outputs(context.naming->folder);
  }
  // Before the manifest: a summary that cannot be written leaves nothing behind.
  std::optional<SummaryFile> summary;
  if (context.has_summary)
    summary.emplace(args.summary, OutputPolicy{.force = args.force, .durable = args.durable},
                    args.resume, context.statistics);
  std::unique_ptr<Manifest> manifest;
  if (has_manifest)
    manifest = open_manifest(args, *context.naming, path,
                             {.options = options_digest(args, context),
                              .shard = shard,
                              .jobs = args.lines() ? std::nullopt : source->count_of_batch(),
                              .list = source->digest_of_list(),
                              .bundle = args.bundle},
                             limits.memory, folders);
  if (args.resume) context.earlier = manifest.get();
  args.executor->begin(args, context, path);
  return run_items(args, context, *source, args.dry_run ? nullptr : manifest.get(),
                   summary ? &*summary : nullptr, stop);
}

}  // namespace

Command batch_command(Executor& executor) {
  const auto args = std::make_shared<BatchArgs>();
  args->executor = &executor;
  Command command;
  command.description =
      "Computes attention for many jobs, several at a time. Flags of 'attn run' that set keys of a "
      "job apply to all jobs.";
  command.quiet_help = "print only errors, and the summary if jobs failed";
  command.example =
      "  attn batch jobs/ --out-dir results --resume\n"
      "  attn batch 'jobs/*.json' --base common.json --causal --out-dir results\n"
      "  generate-jobs | attn batch - --wq W_Q.npy > results.ndjson";
  add_batch_options(command, *args);
  command.action = [args] { return run_batch(*args); };
  command.report = [args](const std::exception_ptr& exception) {
    return args->json ? report_exception_as_event(exception) : report_exception(exception);
  };
  return command;
}

}  // namespace attn
