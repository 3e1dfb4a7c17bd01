// The manifest of a batch: one line of JSON per job (NDJSON), written as jobs finish.
//
// Each run starts with {"schema": "attn-batch/1", "program": ..., "run": TOKEN}; then come lines
//   {"job": NAME, "item": NUMBER, "status": "done"|"failed"|"removed", "seconds": X, "options":
//   DIGEST,
//    "inputs": {FILE: DIGEST}, "outputs": {FILE: DIGEST}, "warning": TEXT, "error": [LINE],
//    "code": N, "id": VALUE, "reason": TEXT}
// The last five keys are optional: "id" is the key of a job line, "reason" says why --resume ran
// the job again. Outputs are relative to the output folder. File names are encoded as in
// base/name_text.h. A later line about a job replaces an earlier one. Invalid lines (for example
// after a power failure) are ignored.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "attn/batch/item.h"
#include "attn/io/descriptor.h"
#include "attn/io/file.h"

namespace attn {

enum class ManifestUse {
  create,     ///< it must not exist, or contain no finished job
  replace,    ///< discard its lines
  resume,     ///< append to it; create it if it does not exist
  read_only,  ///< read it if it exists; neither create, lock nor change it
};

class Manifest {
 public:
  /// Locks the file until destruction. `options` is the digest of the batch's options. With
  /// `durable`, lines are on disk when add() returns. A file that is no manifest, or is larger than
  /// `max_bytes`, is not changed. Errors: busy, if another run has locked it; data, if it cannot be
  /// resumed; cannot_create, if it must not be replaced; permission, io.
  Manifest(const std::string& path, ManifestUse use, std::string options, bool durable,
           std::size_t max_bytes);

  /// Tokens of earlier runs (io/temp_files.h). All of them have ended.
  const std::set<std::string>& earlier_runs() const { return runs_; }

  struct EarlierRun {
    std::vector<FileDigest> outputs;  ///< empty unless the job is finished and unchanged
    Change change = Change::none;     ///< why it has to run again; none for a new job
    std::string changed_file = {};
  };

  /// What an earlier run did with a job. The functions return a file's present digest, or throw an
  /// Error. Thread-safe.
  using DigestOf = std::function<std::string(const std::string&)>;
  EarlierRun earlier_run(const std::string& job, const DigestOf& digest_of_input,
                         const DigestOf& digest_of_output) const;

  /// The jobs that earlier runs finished: their names, numbers and outputs, in any order.
  std::vector<Outcome> finished_jobs() const;

  /// Errors: busy, if another run has locked the file at `path`.
  static void require_unlocked(const std::string& path);

  /// Whether an earlier run wrote this file (relative to the output folder), for any job.
  /// Thread-safe.
  bool has_output(const std::string& output) const;

  /// Appends a line for each outcome that was not skipped, in one write.
  void add(std::span<const Outcome> outcomes);
  /// Call after the last line. Errors: io, if the system reports lost data.
  void close();

  const std::string& path() const { return path_; }

 private:
  bool has_finished_jobs() const;
  std::size_t read_earlier();  ///< returns the size of the complete lines
  void append(std::string_view text);
  [[noreturn]] void fail_to_write(int code, std::size_t written);

  std::string path_, options_;
  bool durable_;
  Descriptor file_;
  FileBytes earlier_;  ///< the file's contents before this run
  std::unordered_map<std::string_view, std::string_view> lines_;  ///< last line by quoted job
  std::set<std::string> runs_;
  // The outputs of all lines are parsed when first needed, under a mutex: an
  // exception cannot leave the C library's pthread_once() if the unwinder is linked statically.
  mutable std::mutex outputs_mutex_;  ///< guards the two members below
  mutable std::string_view outputs_unread_;
  mutable std::unordered_set<std::string> outputs_;
};

}  // namespace attn
