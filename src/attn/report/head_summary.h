// Statistics of a head for sorting and filtering heads on a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

/// The statistics of docs/statistics.md over the drawn queries and keys, without queries whose
/// weights have no positive sum or a NaN. NaN if no query is left, or if a value is negative.
struct HeadSummary {
  double entropy = 0;
  double first = 0;  ///< first_key_weight
  double distance = 0;
  double previous = 0;  ///< previous_token_weight
  double largest = 0;   ///< the largest magnitude of all values
};

/// Collects the rows of a head.
class HeadSummarizer {
 public:
  /// `queries` and `keys` are the drawn rows and columns, of a tensor (L, S); both
  /// must outlive this object. If S >= L, the last query is at the position of the last key;
  /// otherwise the first query is at that of the first key.
  HeadSummarizer(const std::vector<std::size_t>& queries, const std::vector<std::size_t>& keys,
                 std::size_t L, std::size_t S);

  void add(const HeatRow& row, std::size_t i);  ///< of queries[i]
  HeadSummary summary() const;

 private:
  const std::vector<std::size_t>& queries_;
  const std::vector<std::size_t>& keys_;
  std::size_t offset_;
  bool negative_ = false;
  std::size_t rows_ = 0;
  double weight_sum_ = 0;
  HeadSummary sum_;
};

}  // namespace attn
