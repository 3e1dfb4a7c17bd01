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
  /// `own_keys` has the key at the position of each drawn query, `keys` the drawn keys; both must
  /// outlive this object.
  HeadSummarizer(const std::vector<std::int64_t>& own_keys, const std::vector<std::size_t>& keys);

  void add(const HeatRow& row, std::size_t i);  ///< of the drawn query i
  HeadSummary summary(bool is_weights) const;   ///< otherwise only `largest` is a number

 private:
  const std::vector<std::int64_t>& own_keys_;
  const std::vector<std::size_t>& keys_;
  bool negative_ = false;
  std::size_t rows_ = 0;
  double weight_sum_ = 0;
  HeadSummary sum_;
};

}  // namespace attn
