// The values of one matrix in the format of the page (page/values.js).
#pragma once

#include <cstddef>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

/// For each row the columns [first, end) that are stored. Outside, all panels have only hidden
/// cells, for example above the diagonal of causal attention.
struct PageSpans {
  std::vector<std::size_t> first, end;
  std::size_t cells() const;
};
PageSpans spans_of(const HeatMap& map);

/// Spans that contain both.
PageSpans united(const PageSpans& a, const PageSpans& b);

/// Spans after blocks of step x step cells are reduced to one.
PageSpans reduced(const PageSpans& spans, std::size_t step);

/// All little-endian.
struct PageValues {
  std::vector<std::byte> cells;  ///< values of 64, 32, 16 or 8 bits; the span of each row
  std::vector<std::byte> rows;   ///< four float32 per row: sum, entropy in bits, least, greatest
};

/// 64 and 32 bits: floats, hidden cells are -inf. 16 and 8 bits: a step of the row's range, 0 for
/// the least and 2^bits - 3 for the greatest value; the two codes above mean NaN and hidden. Sums
/// and entropies (of the row divided by its sum) are NaN if a value is NaN or if `whole` is false
/// (rows were merged); entropies also if a value is negative or the sum is 0.
PageValues page_values(const HeatMap& map, const HeatPanel& panel, const PageSpans& spans, int bits,
                       bool whole);

}  // namespace attn
