// One job of many, and what became of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn {

struct Item {
  std::size_t number = 0;  ///< among all items, from 1
  std::string name;        ///< the job file as listed, or "line 3": for messages and the manifest
  std::string below;       ///< the job file below the folder that was named
  std::optional<std::string> line = {};  ///< the job itself where it came as a line of text
  std::string fault = {};                ///< why it is no job: it fails with these words
};

enum class Status {
  done,
  failed,
  skipped,  ///< finished by an earlier run, or there already
};

/// "done", "failed", "skipped"
const char* name_of(Status status);

/// A file, and the digest of its bytes.
using Stamp = std::pair<std::string, std::string>;

struct Outcome {
  std::size_t number = 0;
  std::string name = {};
  Status status = Status::done;
  double seconds = 0;
  std::vector<Stamp> inputs = {}, outputs = {};  ///< outputs below the output folder
  std::vector<std::string> error = {};           ///< lines, when it failed
  int code = 0;              ///< when it failed: the exit code that `attn run` would have given
  std::string warning = {};  ///< a line
  std::string text = {};     ///< for standard output
};

/// One line of JSON, without its end: {"job": NAME, "item": NUMBER, "status": ..., ...} as
/// batch/manifest.h describes; `options` is left out where it is empty.
std::string outcome_json(const Outcome& outcome, const std::string& options);

/// What stands on standard output in the place of a result: {"schema", "job", "error", "code"}.
std::string failure_json(const Outcome& outcome);

/// Where items come from. Not thread-safe.
class ItemSource {
 public:
  ItemSource() = default;
  ItemSource(const ItemSource&) = delete;
  ItemSource& operator=(const ItemSource&) = delete;
  virtual ~ItemSource() = default;
  virtual std::optional<Item> next() = 0;                ///< nothing: that was the last
  virtual std::optional<std::size_t> count() const = 0;  ///< how many in all, where known
  /// Whether next() has an item at hand, as far as is known; any thread may ask.
  virtual bool has_more() const { return false; }
};

}  // namespace attn
