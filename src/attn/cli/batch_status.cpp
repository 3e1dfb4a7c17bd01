#include "attn/cli/batch_status.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/batch_status.h"
#include "attn/batch/manifest.h"
#include "attn/batch/prune.h"
#include "attn/io/json_write.h"
#include "attn/io/staged_file.h"

namespace attn {
namespace {

constexpr int kIncomplete = 3;          // exit code
constexpr std::size_t kMaxRanges = 50;  // in text; JSON has all
constexpr std::size_t kMaxListed = 20;  // jobs, in text; JSON has all

/// "count":2,"items":"3,7"
std::string members_of(const NumberSet& jobs, bool is_known = true) {
  return "\"count\":" + (is_known ? std::to_string(jobs.size()) : "null") + ",\"items\":\"" +
         jobs.text() + "\"";
}

std::string failure_json(const Outcome& job) {
  return "{" + identity_members(job) + ",\"item\":" + std::to_string(job.number) +
         ",\"code\":" + std::to_string(job.code) + ",\"error\":[" +
         join(job.error, ",", [](const std::string& line) { return json_quoted(line); }) + "]" +
         (is_deleted_file(job.name) ? ",\"deleted\":true}" : "}");
}

std::string json_of(const BatchStatus& status, bool has_names) {
  std::string text = "{\"schema\":\"attn-batch-status/1\",\"jobs\":" +
                     (status.jobs ? std::to_string(*status.jobs) : "null") + ",\"done\":{" +
                     members_of(status.done) + "},\"failed\":{" + members_of(status.failed) +
                     ",\"jobs\":[" + join(status.failures, ",", failure_json) + "]},\"missing\":{" +
                     members_of(status.missing, status.jobs.has_value());
  if (has_names)
    text += ",\"jobs\":[" +
            join(status.missing_names, ",",
                 [](const std::string& name) { return json_quoted(text_of_name(name)); }) +
            "]";
  return text + "},\"shards\":" + std::to_string(status.shards) + ",\"resubmit\":\"" +
         status.resubmit.text() + "\"}\n";
}

/// "failed: 2 (3,7)"
std::string line_of(const char* name, const NumberSet& jobs) {
  std::string line = std::string(name) + ": " + std::to_string(jobs.size());
  if (jobs.size() > 0) line += " (" + jobs.text(kMaxRanges) + ")";
  return line + "\n";
}

/// A line for each of at most kMaxListed items, then the number of the others.
template <class Item, class Text>
std::string first_lines(const std::vector<Item>& items, Text text) {
  std::string lines;
  for (std::size_t i = 0; i < std::min(items.size(), kMaxListed); ++i)
    lines += "  " + text(items[i]) + "\n";
  if (items.size() > kMaxListed)
    lines += "  and " + std::to_string(items.size() - kMaxListed) + " more\n";
  return lines;
}

std::vector<std::string> deleted_files(const std::vector<Outcome>& failures) {
  std::vector<std::string> files;
  for (const Outcome& job : failures)
    if (is_deleted_file(job.name)) files.push_back(job.name);
  return files;
}

/// Of a batch of lines that has not read all of them: those before the last one that ran.
std::string lines_missing(const BatchStatus& status) {
  const std::size_t last = std::max(status.done.highest(), status.failed.highest());
  std::string line = "missing: not known";
  if (status.missing.size() > 0)
    line += ", except " + std::to_string(status.missing.size()) + " (" +
            status.missing.text(kMaxRanges) + ")";
  return line + (last == 0 ? "" : "; the last job that ran is " + std::to_string(last)) + "\n";
}

/// `deleted` are files of failed jobs, which no run can complete. Their numbers are not shown,
/// because other jobs will have them in the next run.
std::string status_text(const BatchStatus& status, const std::vector<std::string>& deleted) {
  std::string text = status.jobs ? counted(*status.jobs, "job") + "\n"
                                 : "number of jobs not known: no run has read all lines\n";
  text += line_of("done", status.done) + line_of("failed", status.failed);
  text += first_lines(status.failures, [](const Outcome& job) {
    return job.error.empty() ? printable(job.name) : printable_message(job.error.front());
  });
  if (!deleted.empty())
    text += "failed, and their files do not exist: " + std::to_string(deleted.size()) +
            "; --status DIR JOB... counts only the jobs given\n" + first_lines(deleted, printable);
  text += status.jobs ? line_of("missing", status.missing) : lines_missing(status);
  text += first_lines(status.missing_names, printable);
  if (status.is_complete()) return text;
  const bool can_run = deleted.size() < status.failures.size() || status.missing.size() > 0;
  if (status.jobs && !can_run) return text;
  if (status.shards == 1) return text + "run again with --resume\n";
  return text + "run again with --array=" + status.resubmit.text() + " and --resume --shard auto/" +
         std::to_string(status.shards) + "\n";
}

}  // namespace

int print_status(const StatusRequest& request) {
  Manifest manifest(request.folder + "/manifest.ndjson", ManifestUse::read_only, {}, false,
                    request.max_memory);
  manifest.read_shards(request.folder, request.max_memory);
  if (manifest.left_out()) throw *manifest.left_out();
  if (manifest.runs().empty())
    throw Error(ErrorKind::no_input,
                printable(request.folder) + ": contains no manifest of attn batch");
  const BatchStatus status = status_of(manifest, request.jobs);
  if (status.list_changed && !request.jobs)
    fail_usage("--status " + printable(request.folder) +
               ": the list of jobs has changed between runs; give the jobs: --status " +
               printable(request.folder) + " JOB...");
  if (!request.quiet || request.json || !status.is_complete()) {
    print(request.json ? json_of(status, request.jobs.has_value())
                       : status_text(status, request.jobs ? std::vector<std::string>()
                                                          : deleted_files(status.failures)));
  }
  return status.is_complete() ? 0 : kIncomplete;
}

}  // namespace attn
