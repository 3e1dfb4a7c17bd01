// The summary of a batch (--summary): a row for each job with its status, time, and statistics of
// its outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/batch/item.h"
#include "attn/io/json_write.h"
#include "attn/io/spool_file.h"
#include "attn/io/staged_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The names of the statistics: min, max, mean, entropy.
const std::vector<std::string>& statistic_names();

/// {"weights": {"shape": [4, 4], "min": 0.1, "max": 0.5, "mean": 0.25, "entropy": 1.3}} with the
/// `chosen` statistics, which leave out NaN. Those of attention/row_statistics.h are means over the
/// rows of outputs that are weights; others have none.
std::string statistics_json(const TensorMap& outputs, const std::vector<std::string>& chosen);

/// A .csv or .ndjson file, which is complete or absent. Rows wait in a temporary file in its folder
/// until commit(). Not thread-safe. Errors: as OutputFile; usage, for another suffix.
class SummaryFile {
 public:
  /// `replaces_summary`: an existing file is replaced if it is a summary.
  SummaryFile(const std::string& path, OutputPolicy policy, bool replaces_summary,
              std::vector<std::string> chosen);
  void add(const Outcome& outcome);
  void commit();
  /// Skipped jobs of which no statistics are known.
  std::size_t skipped_without_statistics() const { return skipped_without_statistics_; }

 private:
  template <class Act>
  void for_each_row(Act act);
  std::string csv_header(const std::vector<std::string>& outputs) const;
  std::string csv_row(const Json& row, const std::vector<std::string>& outputs) const;

  const bool is_csv_;
  const std::vector<std::string> chosen_;
  OutputFile file_;
  SpoolFile rows_;  ///< NDJSON
  std::size_t skipped_without_statistics_ = 0;
};

}  // namespace attn
