// The numbers of one matrix as the page reads them (page/values.js).
#pragma once

#include <cstddef>
#include <vector>

#include "attn/report/heat_map.h"

namespace attn {

/// Of each row, the columns [first, end) outside of which no panel has anything but hidden cells:
/// those (above the diagonal of causal attention, say) are not stored.
struct PageSpans {
  std::vector<std::size_t> first, end;
  std::size_t cells() const;
};
PageSpans spans_of(const HeatMap& map);

/// Around both.
PageSpans joined(const PageSpans& a, const PageSpans& b);

/// Of the map whose blocks of step x step cells are drawn as one.
PageSpans reduced(const PageSpans& spans, std::size_t step);

/// All little-endian.
struct PageValues {
  std::vector<std::byte> cells;  ///< values of 64, 32, 16 or 8 bits, row by row, each row's span
  std::vector<std::byte> rows;   ///< four float32 a row: sum, entropy in bits, least, most
};

/// Floats as they are, hidden cells as -inf. With 16 and 8 bits a value is a step of its row's
/// range, 0 for the least and 2^bits - 3 for the most; the two codes above are NaN and hidden.
/// Sums and entropies (of the row divided by its sum) are NaN where a value is NaN, entropies also
/// where one is negative or the sum is 0; both where `whole` is false: rows were merged.
PageValues page_values(const HeatMap& map, const HeatPanel& panel, const PageSpans& spans, int bits,
                       bool whole);

}  // namespace attn
