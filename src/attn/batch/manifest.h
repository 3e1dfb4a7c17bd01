// The manifest of a batch: one line of JSON per job (NDJSON), written as jobs finish.
//
// Each run starts with
//   {"schema": "attn-batch/1", "program": ..., "run": TOKEN, "shard": "2/4", "bundle": N, "jobs":
//   NUMBER, "list": DIGEST}
// "shard" is absent for a whole batch, "bundle" without --bundle; "jobs" is the number of jobs of
// the whole batch, and "list" a digest of their names in order. If the jobs are lines of standard
// input, "list" is absent, and the number follows at the end of a run that has read all of them:
//   {"schema": "attn-batch/1", "run": TOKEN, "jobs": NUMBER}
// Between these are lines
//   {"job": NAME, "item": NUMBER, "status": "done"|"failed"|"removed", "seconds": X, "options":
//   DIGEST,
//    "inputs": {FILE: DIGEST}, "outputs": {FILE: DIGEST}, "warning": TEXT, "error": [LINE],
//    "code": N, "id": VALUE, "reason": TEXT, "statistics":
//    {OUTPUT: {...}}}
// The last six keys are optional: "id" is the key of a job line, "reason" says why --resume ran
// the job again. Outputs are relative to the output folder. File names are encoded as in
// base/text.h. A later line about a job replaces an earlier one. Invalid lines (for example
// after a power failure) are ignored.
//
// Each shard has a manifest of its own, with one writer, and reads those of the others: on network
// file systems, locks and appending from several machines are not reliable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/batch/item.h"
#include "attn/batch/shard.h"
#include "attn/io/file.h"
#include "attn/io/open_file.h"
#include "attn/io/used_files.h"

namespace attn {

enum class ManifestUse {
  create,     ///< it must not exist, or be a manifest without finished jobs
  replace,    ///< discard its lines
  resume,     ///< append to it; create it if it does not exist
  read_only,  ///< read it if it exists; neither create, lock nor change it
};

/// What a run is a part of.
struct RunDescription {
  std::string options = {};  ///< the digest of the batch's options
  Shard shard = {};
  std::optional<std::size_t> jobs = {};  ///< of the whole batch, if known when the run starts
  std::string list = {};                 ///< ItemSource::digest_of_list(), or "" if not recorded
  std::size_t bundle = 0;                ///< jobs of a bundle; 0: each job has its own files
};

class Manifest {
 public:
  /// Locks the file until destruction, if the file system has locks. With `durable`, lines are on
  /// disk when add() returns. A file that is not a manifest, or is larger than `max_bytes`, is not
  /// changed. Errors: busy, if another run has locked it; data, if it cannot be resumed;
  /// cannot_create, if it must not be replaced; permission, io.
  Manifest(const std::string& path, ManifestUse use, RunDescription run, bool durable,
           std::size_t max_bytes);

  /// Also reads the manifests that other shards, also of another number of shards, wrote in
  /// `folder`: a job is finished if any of them says so. Their lines may be growing. A file that
  /// cannot be read, or does not fit in `max_bytes` together with the others, is left out;
  /// left_out() returns the first such error.
  void read_shards(const std::string& folder, std::size_t max_bytes);

  const std::optional<Error>& left_out() const { return left_out_; }

  /// Tokens of earlier runs (io/temp_files.h). All of them have ended.
  const std::set<std::string>& earlier_runs() const { return runs_; }

  struct EarlierRun {
    std::vector<FileDigest> outputs;  ///< empty unless the job is finished and unchanged
    Change change = Change::none;     ///< why it has to run again; none for a new job
    std::string changed_file = {};
    std::string statistics = {};  ///< if the job is finished: those of its line, or ""
  };

  /// The result of a job in an earlier run. The two functions return the present digest of a file,
  /// or throw an Error. Thread-safe.
  using DigestOf = std::function<std::string(const std::string&)>;
  EarlierRun earlier_run(const std::string& job, const DigestOf& digest_of_input,
                         const DigestOf& digest_of_output) const;

  /// Calls act() for each job in the manifests, in any order: its name, number, status, outputs,
  /// and for a failed job its error. If manifests disagree, a job is done if any says so.
  void for_each_job(const std::function<void(Outcome)>& act) const;

  /// The runs in the manifests, without their options.
  std::vector<RunDescription> runs() const;

  /// Compares the first line of the manifest at `path`, and of all manifests in `folder` unless it
  /// is "", with the bundle size of a run that is to continue them. With another size, the results
  /// of the earlier run would stay beside those of the new one. Errors: cannot_create, if a size
  /// differs.
  static void require_bundle_size(const std::string& path, const std::string& folder,
                                  std::size_t bundle);

  /// Errors: busy, if another run has locked the file at `path`.
  static void require_unlocked(const std::string& path);

  /// Whether an earlier run wrote this file, whose path is relative to the output folder, for any
  /// job, or as a bundle. Thread-safe.
  bool has_output(const std::string& output) const;

  /// Appends a line for each outcome that was not skipped, in one write.
  void add(std::span<const Outcome> outcomes);
  /// The line of an outcome, with its newline.
  std::string line_of(const Outcome& outcome) const;
  void add_lines(std::string_view lines) { append(lines); }
  /// Records the number of jobs of the whole batch.
  void add_job_count(std::size_t jobs);
  /// Call it after the last add(). Errors: io, if the system reports lost data.
  void close();

  const std::string& path() const { return path_; }

 private:
  bool has_finished_jobs() const;
  std::size_t read_earlier();  ///< returns the size of the complete lines
  /// The lines about a job, the last one of each manifest. `quoted_job` is JSON.
  std::vector<std::string_view> lines_about(std::string_view quoted_job) const;
  EarlierRun run_in_line(std::string_view line, const DigestOf& digest_of_input,
                         const DigestOf& digest_of_output) const;
  void read_shard(const std::string& path, std::size_t max_bytes);
  std::size_t bytes_read() const;
  void append(std::string_view text);
  [[noreturn]] void fail_to_write(int code, std::size_t written);

  std::string path_;
  RunDescription run_;
  bool durable_;
  std::optional<OutputClaim> claim_;  ///< if it is written
  Descriptor file_;
  FileBytes earlier_;              ///< the file's contents before this run
  std::vector<FileBytes> shards_;  ///< the contents of other manifests
  std::unordered_map<std::string_view, std::string_view> lines_;  ///< last line by quoted job
  /// The last lines in further manifests, about jobs that are also in `lines_`.
  std::unordered_multimap<std::string_view, std::string_view> further_lines_;
  std::optional<Error> left_out_;
  std::vector<std::string_view> run_lines_;  ///< those with the key "schema"
  std::set<std::string> runs_;
  // The outputs of all lines are parsed when first needed. This uses a mutex, not std::call_once:
  // with a statically linked unwinder, an exception cannot leave the C library's pthread_once().
  mutable std::mutex outputs_mutex_;  ///< guards the two members below
  mutable std::vector<std::string_view> outputs_unread_;
  mutable std::unordered_set<std::string> outputs_;
};

}  // namespace attn
