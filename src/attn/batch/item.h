// One job of a batch, its outcome, and the interface of job sources.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn {

/// The key of an input and its file: "Q", "q_1.npy".
using InputFile = std::pair<std::string, std::string>;

struct Item {
  std::size_t number = 0;                ///< position in the whole batch, from 1
  std::string name;                      ///< the job file as listed, or "line 3"
  std::string relative;                  ///< the job file's path below the folder given by the user
  std::optional<std::string> line = {};  ///< the job itself, if it is a line of standard input
  std::vector<InputFile> inputs = {};    ///< the job itself, if `name` is only one of its files
  std::string invalid = {};              ///< why it cannot be a job; it fails with this message
};

enum class Status {
  done,
  failed,
  skipped,  ///< finished by an earlier run, or its results exist (--no-clobber)
  removed,  ///< its job file no longer exists, and its results were removed (--prune)
};
constexpr Status kLastStatus = Status::removed;

/// Why --resume runs a job again.
enum class Change {
  none,      ///< it is new, or it is skipped
  error,     ///< its last run failed
  options,   ///< of the batch: flags, base, or program version
  input,     ///< a file that it reads
  output,    ///< a file that it wrote
  manifest,  ///< its line is damaged
};
constexpr Change kLastChange = Change::manifest;

/// "done", "failed", "skipped", "removed"
const char* name_of(Status status);

/// A file and the digest of its bytes.
using FileDigest = std::pair<std::string, std::string>;

struct Outcome {
  std::size_t number = 0;
  std::string name = {};
  Status status = Status::done;
  double seconds = 0;
  std::vector<FileDigest> inputs = {};
  std::vector<FileDigest> outputs = {};  ///< paths relative to the output folder
  std::vector<std::string> error = {};   ///< lines; empty unless it failed
  int code = 0;                          ///< if it failed: the exit code of `attn run`
  bool out_of_memory = false;            ///< it failed because an allocation failed
  std::string warning = {};              ///< one line
  std::string id = {};                   ///< JSON value of the key "id" in the job's line, or ""
  Change change = Change::none;
  std::string changed_file = {};  ///< for Change::input and Change::output
  std::string statistics = {};    ///< of the outputs, as JSON (batch/summary.h), or ""
  std::string text = {};          ///< for standard output
};

/// Sorts by `precedes`. The only std::sort of outcomes: each one adds 35 kB to the program.
void sort_outcomes(std::vector<Outcome>& outcomes,
                   bool (*precedes)(const Outcome& a, const Outcome& b));

/// One line of JSON without a newline: {"job": NAME, "item": NUMBER, "status": ..., ...}, as
/// batch/manifest.h describes. An empty `options` is left out.
std::string outcome_json(const Outcome& outcome, const std::string& options);

/// "w.npy changed or is missing"; "" for Change::none.
std::string reason_of(Change change, const std::string& file);

/// "job":"line 3","id":7 - identifies the item in each line of standard output.
std::string identity_members(const Outcome& outcome);

/// Printed instead of the result of a failed job: {"schema", "job", "id", "error", "code"}.
std::string failure_json(const Outcome& outcome);

/// Where items come from. Not thread-safe, except for has_more().
class ItemSource {
 public:
  ItemSource() = default;
  ItemSource(const ItemSource&) = delete;
  ItemSource& operator=(const ItemSource&) = delete;
  virtual ~ItemSource() = default;
  virtual std::optional<Item> next() = 0;                ///< empty after the last item
  virtual std::optional<std::size_t> count() const = 0;  ///< of all items, if known
  /// Of all items of the batch, of which this source may be a shard; known at the end at the
  /// latest.
  virtual std::optional<std::size_t> count_of_batch() const { return count(); }
  /// A digest of the names of all items of the batch, in order; "" if they are lines.
  virtual std::string digest_of_list() const { return ""; }
  /// Whether next() would return an item without waiting for input. Thread-safe.
  virtual bool has_more() const { return false; }
  /// Whether next() would return without waiting, also at the end. Reads input that has arrived.
  virtual bool is_ready() { return true; }
  /// The descriptor to wait for if is_ready() is false; -1: none.
  virtual int descriptor() const { return -1; }
};

}  // namespace attn
