// Which queries and keys belong together, and how far apart they stand.
//
// Each query and each key of a batch row is in a document (all in one, unless `documents` or
// `cu_seqlens` say otherwise) and has a place in it; queries see keys of their own document only.
// What is behind `query_lengths` and `key_lengths` is padding: in no document.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/core/axis_lengths.h"
#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The places of a problem: one for each batch row, or a single one that serves all.
///
/// `numbers` may hold (integers; without a batch axis B is 1)
///   query_lengths, key_lengths (B) or ()          the first so many are there, the rest is padding
///   documents (L) or (B, L), key_documents (S) or (B, S)      equal numbers belong together;
///                                                 key_documents is documents where it is absent
///   cu_seqlens_q, cu_seqlens_k (n + 1)            documents one behind another: number d has the
///                                                 places cu[d] to cu[d + 1] - 1
/// S counts the keys of the past and the new ones. Contradictions go to `axes`.
std::vector<Places> make_places(const TensorMap& numbers, Alignment alignment, const Inputs& in,
                                AxisLengths& axes);

}  // namespace attn
