// The numbers of one matrix as the page reads them (page/values.js).
#pragma once

#include <string>

#include "attn/report/heat_map.h"

namespace attn {

/// Both in base64, little-endian.
struct PageValues {
  std::string cells;  ///< rows * columns values of 64, 32, 16 or 8 bits
  std::string rows;   ///< four float32 a row: sum, entropy in bits, least, most
};

/// Floats as they are, hidden cells as -inf. With 16 and 8 bits a value is a step of its row's
/// range, 0 for the least and 2^bits - 3 for the most; the two codes above are NaN and hidden.
/// Sums and entropies (of the row divided by its sum) are NaN where a value is NaN, entropies also
/// where one is negative or the sum is 0; both where `whole` is false: rows were merged.
PageValues page_values(const HeatMap& map, const HeatPanel& panel, int bits, bool whole);

}  // namespace attn
