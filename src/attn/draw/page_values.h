// The values of a matrix as a page stores them.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/draw/page_survey.h"

namespace attn {

/// Appends a float of 32 or 64 bits, little-endian.
void append_float(std::vector<std::byte>& bytes, double value, int bits);

/// How values are stored.
struct PagePrecision {
  int bits = 64;         ///< per value; 64 or 32: float; 16 or 8: steps of the row's range
  std::size_t step = 1;  ///< blocks of step x step cells are stored as one
  bool exact = true;     ///< no value is rounded
};

/// Collects the values of a matrix, little-endian. For each row of blocks four float32: sum,
/// entropy in nats, least, greatest. Then for each row the columns of its span, with 64, 32, 16 or
/// 8 bits each.
///
/// 64 and 32 bits: floats, hidden cells are -inf. 16 and 8 bits: a step of the row's range, 0 for
/// the least and 2^bits - 3 for the greatest value; the two codes above mean NaN and hidden. Values
/// beyond float32 become NaN, with 16 and 8 bits also infinite ones. Sums
/// and entropies (weight_sum and entropy of attention/row_statistics.h) are NaN if a value is NaN
/// or `step` is not 1 (rows were merged) or the values are not weights; entropies also if a value
/// is negative or the sum is 0 or infinite.
class PageValues {
 public:
  /// `spans` are those of blocks, and must outlive this object.
  PageValues(const PageSpans& spans, const PagePrecision& precision, bool is_weights)
      : spans_(spans), precision_(precision), sums_(is_weights && precision.step == 1) {}

  void add(const HeatRow& row);  ///< the next row of cells
  /// After the last row.
  std::vector<std::byte> take();

 private:
  void end_row();

  const PageSpans& spans_;
  PagePrecision precision_;
  bool sums_;               ///< whether to store sums and entropies
  HeatRow blocks_;          ///< of the rows that have been added since the last row of blocks
  std::size_t merged_ = 0;  ///< the number of these rows
  std::size_t row_ = 0;     ///< of blocks
  std::vector<std::byte> facts_, cells_;
};

}  // namespace attn
