// Which keys each query sees by its position: segments, lengths, causality and the window. Masks
// can hide more keys (core/mask.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// For each batch row, or once if in.token_positions has one entry for all of them, a range for
/// each of in.rows. nullopt if the keys that a query sees are not contiguous: segments may be
/// interleaved, and appended keys may follow keys that are hidden.
std::optional<std::vector<kernel::KeyRange>> key_ranges(const Inputs& in, const Options& options);

/// Boolean (B, 1, R, S) or (1, 1, R, S): in.key_ranges as a mask, or the same computed directly if
/// there are none.
Tensor visible_by_position(const Inputs& in, const Options& options);

/// Whether this query is beyond the length of its batch row.
bool is_padding(const Inputs& in, std::size_t batch_row, std::size_t query);

}  // namespace attn
