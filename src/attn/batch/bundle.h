// Bundles: files that hold the results of N consecutive jobs (--bundle N).
//
// "bundle-K.npz" or ".safetensors" has the outputs of jobs (K-1)*N+1 to K*N as tensors NAME/OUTPUT,
// where NAME is the job's --name. A job that failed has none. Bundles appear only when all of their
// jobs have been run, and then the manifest gets the lines of these jobs. The output of a job in
// the manifest is "bundle-K.npz#NAME", with a digest of its tensors, so that a bundle can be
// replaced, when some of its jobs run again, without changing the digests of the others.
//
// made_by of a bundle has the member `jobs`, and in it by name those jobs for which the positions
// of their queries (job/recorded_positions.h) or visible keys (job/recorded_visibility.h) are
// recorded. If all this has more bytes than the comment of an .npz file may have, or 2^20 in a
// .safetensors file, it has no visible keys, and if it has more without them, the positions of all
// jobs are null: unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/batch/batch_context.h"
#include "attn/batch/item.h"
#include "attn/batch/manifest.h"
#include "attn/io/file_layout.h"
#include "attn/io/json_write.h"
#include "attn/io/spool_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The outputs of one job as text: names, dtypes, shapes, checksums and elements, as a bundle with
/// this suffix (".npz") stores them.
std::string encoded_result(const TensorMap& outputs, const std::string& suffix);
/// The members of `made_by` that bundles record, as text, which BundleWriter expects before the
/// outputs.
std::string encoded_record(const Json& made_by);

/// A bundle on disk.
class OpenBundle {
 public:
  /// Errors: as read_npz() and read_safetensors().
  OpenBundle(const std::string& path, const ReadLimits& limits);
  /// The outputs of the job called `name`; empty if it has none.
  TensorMap result(const std::string& name) const;
  /// made_by of the job called `name`; null if it has none.
  const Json& made_by(const std::string& name) const;
  std::size_t jobs() const { return indices_.size(); }  ///< with results in the bundle

 private:
  TensorMap tensors_;
  Json made_by_;  ///< of all jobs, or null if `records_` has those that have one
  std::map<std::string, Json, std::less<>> records_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> indices_;  ///< by the job's name
};

/// The bundles that were opened last. Thread-safe.
class BundleCache {
 public:
  explicit BundleCache(const ReadLimits& limits) : limits_(limits) {}
  /// nullptr if the file does not exist or cannot be read.
  std::shared_ptr<const OpenBundle> find(const std::string& path);

 private:
  static constexpr std::size_t kKept = 2;
  const ReadLimits limits_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<const OpenBundle>>> kept_;  ///< oldest first
};

/// Collects results in the order of the jobs and writes each bundle when it is complete, then its
/// lines in the manifest. Elements wait in a file, not in memory. Not thread-safe. Errors: as
/// OutputFile and Manifest; data, if the names and lines of a bundle take more than `max_bytes`.
class BundleWriter {
 public:
  BundleWriter(const BatchContext& context, Manifest& manifest, std::size_t max_bytes);
  void add(std::span<const Outcome> outcomes);
  /// Call it after the last job of the batch: the last bundle may have fewer jobs.
  void finish();
  /// Call it if the batch ends early: records failed jobs of the bundle that is not complete, and
  /// returns the number of results that are lost.
  std::size_t abandon();

 private:
  struct Member {
    TensorSpec spec;
    std::uint32_t checksum = 0;
    std::uint64_t offset = 0;  ///< of the elements in the spool file
    Tensor tensor = {};        ///< the elements, if the old file has them
    bool is_kept_job = false;  ///< all members of a job, which are still in the old file
  };
  /// The members that made_by of a bundle has for a job, as JSON text; "" for what it lacks.
  struct Record {
    std::string labels;   ///< {"axes": ..., "positions": ...}: all that readers need
    std::string visible;  ///< the value
  };
  void begin(std::size_t bundle);
  void add_result(const Outcome& outcome);
  void add_members(const std::string& output, std::string_view result);
  void add_record(const std::string& job, Record record);
  void order_records();
  std::string made_by() const;
  FileLayout layout(const std::string& path) const;
  void keep_earlier_result(const Outcome& outcome);
  void fetch_kept_results(const OpenBundle& old);
  void commit();
  void write(const std::string& path);
  void write_elements(const Member& member, OutputFile& out);
  void require_memory() const;

  const BatchContext& context_;
  Manifest& manifest_;
  const std::size_t max_bytes_;
  SpoolFile spool_;
  std::size_t bundle_ = 0;              ///< its number; 0: none
  std::size_t results_ = 0, kept_ = 0;  ///< jobs with a new result, and with one in the old file
  std::size_t bytes_ = 0;               ///< of names
  std::vector<Member> members_;
  std::vector<std::pair<std::string, Record>> records_;  ///< of jobs that have one
  std::size_t visible_bytes_ = 0, labels_bytes_ = 0;     ///< of all records, also those left out
  std::string lines_;                                    ///< of the manifest
  std::string failure_lines_;                            ///< those of failed jobs
};

}  // namespace attn
