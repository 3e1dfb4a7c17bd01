#include "attn/core/inputs_part.h"

#include <cstddef>

#include "attn/core/mask.h"

namespace attn {

Inputs part_of(const Inputs& in, const RowRanges& rows) {
  Inputs part = in;
  part.rows.clear();
  for (const RowRange& range : rows) {
    const auto first = in.rows.begin() + static_cast<std::ptrdiff_t>(range.first);
    part.rows.insert(part.rows.end(), first, first + static_cast<std::ptrdiff_t>(range.count));
  }
  // Without ranges for all rows, options by distance use the reference path.
  if (in.key_ranges) part.key_ranges = key_ranges(part);
  return part;
}

}  // namespace attn
