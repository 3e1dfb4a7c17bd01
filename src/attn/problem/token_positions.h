// Positions of tokens: positional encodings (Position, problem/options.h) and positions within
// documents.
//
// Each query and each key of a batch item belongs to a document (all to one, unless `documents` or
// `cu_seqlens` are given) and has a position in it; queries see keys of their own document only.
// Tokens beyond `query_lengths` and `key_lengths`, and keys before `key_starts`, are padding: they
// see and are seen by none.
#pragma once

#include <vector>

#include "attn/problem/axis_lengths.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// positions (L, M), f64. Computed in doubles, in the order of the formula.
Tensor sinusoidal_positions(const Position& position, std::size_t L, std::size_t M);

/// Whether a column of sinusoidal positions and their sum with embeddings is 0: the last of an odd
/// M, with last_column_zero.
bool is_left_out(const Position& position, std::size_t column, std::size_t M);

/// inputs (B, L, M) = embedding_scale * embeddings + positions: computed in doubles, rounded once
/// to `compute`. Without scale and positions, returns the embeddings unchanged, integers
/// included.
Tensor add_positions(const Tensor& embeddings, const Position& position, DType compute);

/// One entry for each batch item, or one for all of them.
///
/// `numbers` may contain these integer tensors (without a batch axis, B is 1):
///   query_lengths, key_lengths (B) or ()      number of tokens; the rest is padding
///   key_starts (B) or ()                      index of the first key, from which positions of
///                                             queries and keys count; without documents
///   prefix_lengths (B) or ()                  first keys that causality does not hide; with
///                                             cu_seqlens (n) or (), of each segment
///   documents (L) or (B, L)                   segment ids of the queries; negative: padding
///   key_documents (S) or (B, S)               of the keys; default: documents
///   cu_seqlens_q, cu_seqlens_k (n + 1)        segment d has the tokens cu[d] to cu[d + 1] - 1
/// S counts the past and the new keys. Problems are added to `axes`.
std::vector<TokenPositions> make_token_positions(const TensorMap& numbers, const Inputs& in,
                                                 AxisLengths& axes);

}  // namespace attn
