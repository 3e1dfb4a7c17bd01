// What became of each item, on disk: one line of JSON an item (NDJSON), written as items finish.
//
// Each run begins with {"schema": "attn-batch/1", "program": ..., "run": TOKEN}; then come lines of
//   {"job": NAME, "item": NUMBER, "status": "done"|"failed", "seconds": X, "options": DIGEST,
//    "inputs": {FILE: DIGEST}, "outputs": {FILE: DIGEST}, "warning": TEXT, "error": [LINE],
//    "code": N}
// the last three where there is such; outputs stand below the output folder, and names are as
// base/name_text.h has them. A later line about a job replaces an earlier one. A line that is no
// JSON, as a power cut leaves some, is no line.
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
  create,   ///< it must not exist yet
  replace,  ///< begin anew
  resume,   ///< go on with it; begin when there is none
  look,     ///< read what is there, if anything: nothing is made, locked or written
};

class Manifest {
 public:
  /// Locks the file for as long as this lives. `options` is the digest of what all items share.
  /// With `durable` lines are on disk before add() returns. What is no manifest, or has more than
  /// `most` bytes, is left as it is. Errors: busy when another run has it; data, for what cannot be
  /// gone on with; cannot_create, for what may not be replaced; permission, io.
  Manifest(const std::string& path, ManifestUse use, std::string options, bool durable,
           std::size_t most);

  /// The tokens of earlier runs (io/temporaries.h), all of which have ended.
  const std::set<std::string>& earlier_runs() const { return runs_; }

  /// The outputs of a job that an earlier run finished with the same options and inputs, when its
  /// outputs are still as they were; otherwise nothing. `digest_of_input` and `digest_of_output`
  /// give a file's digest now, or throw. May be called by several threads.
  using DigestOf = std::function<std::string(const std::string&)>;
  std::vector<Stamp> finished(const std::string& job, const DigestOf& digest_of_input,
                              const DigestOf& digest_of_output) const;

  /// Whether there is a line about a job.
  bool knows(const std::string& job) const;

  /// Whether an earlier run wrote this file below the output folder, for whatever job. May be
  /// called by several threads.
  bool wrote(const std::string& output) const;

  /// A line for each that was not skipped, in one write.
  void add(std::span<const Outcome> outcomes);
  void close();  ///< after the last: what the system tells of lines that are lost, it tells now

  const std::string& path() const { return path_; }

 private:
  std::size_t read_earlier();  ///< how many bytes are whole lines
  void append(std::string_view text);
  [[noreturn]] void fail_to_write(int code, std::size_t written);

  std::string path_, options_;
  bool durable_;
  Descriptor file_;
  FileBytes earlier_;  ///< what stood there before
  std::unordered_map<std::string_view, std::string_view>
      lines_;  ///< job in quotes -> its last line
  std::set<std::string> runs_;
  // Not std::call_once(): an exception cannot leave it where the unwinder is linked in and the C
  // library loads another.
  mutable std::mutex outputs_mutex_;  ///< of these two, read when first asked for
  mutable std::string_view outputs_unread_;
  mutable std::unordered_set<std::string> outputs_;  ///< of all its lines
};

}  // namespace attn
