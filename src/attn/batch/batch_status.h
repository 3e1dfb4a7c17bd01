// What the manifests in an output folder say about a batch: which jobs are done, failed and
// missing, and which shards have to run again.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/batch/item.h"
#include "attn/batch/jobs.h"
#include "attn/batch/manifest.h"

namespace attn {

/// A set of whole numbers >= 1, stored as ranges. Its memory does not depend on their lengths.
class NumberSet {
 public:
  void add(std::size_t first, std::size_t last);  ///< nothing if last < first
  void add(std::size_t number) { add(number, number); }
  /// The numbers up to `last` that are not in the set.
  NumberSet missing_up_to(std::size_t last) const;
  std::size_t size() const;
  std::size_t highest() const;  ///< 0 if empty
  /// "3,7-9", with at most `max_ranges` ranges, then ",..."
  std::string text(std::size_t max_ranges = static_cast<std::size_t>(-1)) const;
  /// Sorted, without overlaps.
  const std::vector<std::pair<std::size_t, std::size_t>>& ranges() const;

 private:
  mutable std::vector<std::pair<std::size_t, std::size_t>> ranges_;
  mutable bool is_sorted_ = true;
};

struct BatchStatus {
  std::optional<std::size_t> jobs;  ///< empty if no run has counted them
  NumberSet done, failed, missing;
  std::vector<Outcome> failures;           ///< by number
  std::vector<std::string> missing_names;  ///< if the jobs were given
  std::size_t shards = 1, bundle = 1;      ///< shards, and jobs of a bundle, in the last runs
  NumberSet resubmit;                      ///< shards with failed or missing jobs
  /// The runs had different lists of jobs, so that a number means several jobs.
  bool list_changed = false;

  bool is_complete() const { return resubmit.size() == 0; }
};

/// `expected` are the jobs of the batch, if the user gave them: then they replace the numbers in
/// the manifests.
BatchStatus status_of(const Manifest& manifest,
                      const std::optional<std::vector<JobFile>>& expected);

}  // namespace attn
