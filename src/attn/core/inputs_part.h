// A problem with a part of its queries.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/core/inputs.h"

namespace attn {

/// Entries of Inputs::rows.
struct RowRange {
  std::size_t first = 0, count = 0;
};
using RowRanges = std::vector<RowRange>;

/// The problem with only these rows of in.rows.
Inputs part_of(const Inputs& in, const RowRanges& rows);

}  // namespace attn
