#include "attn/cli/batch.h"

#include <filesystem>
#include <memory>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/version.h"
#include "attn/batch/item_output.h"
#include "attn/batch/job_files.h"
#include "attn/batch/job_lines.h"
#include "attn/batch/manifest.h"
#include "attn/batch/naming.h"
#include "attn/batch/shard.h"
#include "attn/cli/batch_options.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/batch_run.h"
#include "attn/cli/limit_options.h"
#include "attn/cli/message.h"
#include "attn/core/machine.h"
#include "attn/io/bytes.h"
#include "attn/io/digest.h"
#include "attn/io/json_write.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

// Fractions of --max-memory: for shared input files, and for the longest line.
constexpr std::size_t kCacheFraction = 4, kLineFraction = 8;

std::optional<Naming> naming_of(const BatchArgs& args) {
  if (args.out_dir.empty()) return std::nullopt;
  std::string folder = args.out_dir;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string pattern = !args.name.empty() ? args.name : args.lines() ? "{index}" : "{stem}";
  check_pattern(pattern, args.lines());
  return Naming{folder, pattern, args.format == "folder" ? "/" : "." + args.format};
}

/// A digest of everything that all results depend on, except for the jobs' own inputs.
std::string options_digest(const BatchArgs& args, const Document& base, FileCache& cache) {
  std::string text = std::string(kVersion) + "\n" + args.format + "\n" +
                     std::to_string(static_cast<int>(args.nan)) + "\n";
  if (!args.base.empty())
    text += json_quoted(args.base) + "=" + cache.file(args.base)->bytes().digest() + "\n";
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

/// Errors: cannot_create, if the manifest would overwrite an input.
void refuse_input(const std::string& manifest, const std::string& input) {
  std::error_code ignored;
  if (std::filesystem::equivalent(manifest, input, ignored))
    throw Error(ErrorKind::cannot_create,
                printable(manifest) + ": is an input and cannot be overwritten");
}

std::unique_ptr<Manifest> open_manifest(const BatchArgs& args, const Naming& naming,
                                        const std::string& path, const std::string& options,
                                        std::size_t most, ScopedDirectories& folders) {
  if (args.dry_run)
    return std::make_unique<Manifest>(path, ManifestUse::read_only, options, false, most);
  folders.make_with_parents(naming.folder, args.durable);
  const ManifestUse use = args.force                       ? ManifestUse::replace
                          : args.resume || args.no_clobber ? ManifestUse::resume
                                                           : ManifestUse::create;
  auto manifest = std::make_unique<Manifest>(path, use, options, args.durable, most);
  folders.keep();
  if (!manifest->earlier_runs().empty()) remove_leftovers(naming.folder, manifest->earlier_runs());
  return manifest;
}

/// Errors: usage and cannot_create, if results would overwrite each other, job files, or existing
/// files without a flag that allows it; busy, if another running batch writes these results.
void refuse_overwriting(const std::vector<JobFile>& files, const BatchArgs& args,
                        const Naming& naming, const Shard& shard, const std::string& manifest) {
  refuse_clashes(files, naming);
  const ExistingResults existing = existing_results(files, naming, shard);
  const bool expected = args.force || args.resume || args.no_clobber || args.dry_run;
  if (existing.count == 0 || expected) return;
  Manifest::require_unlocked(manifest);
  const std::string others =
      existing.count == 1 ? "" : " and " + std::to_string(existing.count - 1) + " others";
  throw Error(ErrorKind::cannot_create,
              printable(existing.first) + others +
                  ": exists already; --force replaces, --no-clobber skips existing results, "
                  "--resume continues an earlier run");
}

/// `manifest` is "" if none is written.
std::unique_ptr<ItemSource> list_items(const BatchArgs& args, BatchContext& context,
                                       const Shard& shard, const std::string& manifest,
                                       std::size_t most_memory, const std::atomic<bool>& stop) {
  const std::optional<Naming>& naming = context.naming;
  if (args.lines()) return items_of_standard_input(most_memory / kLineFraction, stop);
  std::vector<std::string> words = args.jobs;
  if (!args.files_from.empty()) {
    const std::vector<std::string> names = read_names(args.files_from, args.nul, most_memory);
    words.insert(words.end(), names.begin(), names.end());
  }
  std::vector<JobFile> files = list_job_files(words, naming ? naming->folder : "");
  if (naming) {
    refuse_overwriting(files, args, *naming, shard, manifest);
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
  apply_job_flags(args.flags, base);
  for (Entry& entry : base.entries) entry.shared = true;
  return base;
}

BatchContext context_of(const BatchArgs& args) {
  BatchContext context;
  context.naming = naming_of(args);
  context.base_file = args.base;
  context.no_clobber = args.no_clobber;
  context.nan = args.nan;
  context.records_inputs = context.naming || args.json;
  context.dry_run = args.dry_run;
  context.policy.force = args.force;
  context.policy.durable = args.durable;
  context.policy.digest = true;
  context.policy.nameless = true;
  return context;
}

int run_batch(const BatchArgs& args) {
  check(args);
  machine();  // an invalid ATTN_ISA is an error before any job runs
  const ReadLimits limits = limits_of(args.limits);
  return_freed_memory_to_system();
  MemoryBudget memory(limits.memory - limits.memory / kCacheFraction);
  FileCache cache(limits.memory / kCacheFraction, limits, args.lines());
  BatchContext context = context_of(args);
  context.memory = &memory;
  context.files = &cache;
  context.base = base_of(args, cache);
  check_values(context.base);
  read_numbers(context.base);
  const Shard shard = parse_shard(args.shard);
  std::atomic<bool> stop = false;
  const bool has_manifest = context.naming && (args.resume || !args.dry_run);
  const std::string path = has_manifest ? manifest_path(args, *context.naming, shard) : "";
  const auto source = shard_of(list_items(args, context, shard, path, limits.memory, stop), shard);
  for (const std::string& input : {args.base, args.files_from}) refuse_input(path, input);
  context.policy.inputs = {args.base, args.files_from, path};
  ScopedDirectories folders;
  context.folders = &folders;
  std::unique_ptr<Manifest> manifest;
  if (has_manifest)
    manifest = open_manifest(args, *context.naming, path, options_digest(args, context.base, cache),
                             limits.memory, folders);
  if (args.resume) context.earlier = manifest.get();
  return run_items(args, context, *source, args.dry_run ? nullptr : manifest.get(), stop);
}

}  // namespace

Command batch_command() {
  const auto args = std::make_shared<BatchArgs>();
  Command command;
  command.description = "Computes attention for many jobs, several at a time.";
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
