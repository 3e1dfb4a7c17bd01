// The values of a matrix as a page stores them.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

/// For each row the columns [first, end) that are stored. Outside of this range all cells of all
/// panels are hidden, for example above the diagonal of causal attention.
struct PageSpans {
  std::vector<std::size_t> first, end;
  std::size_t cells() const;
};

/// The smallest spans that contain both.
PageSpans united(const PageSpans& a, const PageSpans& b);

/// Spans after blocks of step x step cells are reduced to one.
PageSpans reduced(const PageSpans& spans, std::size_t step);

struct PageSurvey {
  PageSpans spans;
  double largest = 0;  ///< finite magnitude
};
PageSurvey survey_of(const HeatMap& map);

/// The values of a matrix, little-endian. For each row four float32: sum, entropy in nats, least,
/// greatest. Then for each row the columns of its span, with 64, 32, 16 or 8 bits each.
///
/// 64 and 32 bits: floats, hidden cells are -inf. 16 and 8 bits: a step of the row's range, 0 for
/// the least and 2^bits - 3 for the greatest value; the two codes above mean NaN and hidden. Sums
/// and entropies (of the row divided by its sum) are NaN if a value is NaN or `step` is not 1
/// (rows were merged); entropies also if a value is negative or the sum is 0.
std::vector<std::byte> page_values(const HeatMap& map, const HeatPanel& panel,
                                   const PageSpans& spans, int bits, std::size_t step);

}  // namespace attn
