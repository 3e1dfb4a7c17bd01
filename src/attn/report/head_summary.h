// Statistics of a head for sorting and filtering heads on a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

/// Means over the queries whose weights have a sum above 0 and no NaN; each is computed from the
/// weights divided by their sum. NaN if there is no such query, or if a value is negative.
struct HeadSummary {
  double entropy = 0;   ///< in nats
  double first = 0;     ///< weight of the first key of the tensor
  double distance = 0;  ///< mean of |query - key| as positions
  double previous = 0;  ///< weight of the key before the query; of queries that have one
  double largest = 0;   ///< the largest magnitude of all values; not a mean
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
  std::size_t rows_ = 0, rows_with_previous_ = 0;
  HeadSummary sum_;
};

}  // namespace attn
