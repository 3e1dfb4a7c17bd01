// A problem with a part of its queries, heads or keys.
#pragma once

#include <cstddef>
#include <vector>

#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Entries of Inputs::rows.
struct RowRange {
  std::size_t first = 0, count = 0;
};
using RowRanges = std::vector<RowRange>;

/// The problem with only these rows of in.rows.
Inputs part_of(const Inputs& in, const RowRanges& rows);

/// The problem of batch item b and key/value head g with the query heads that share it, for the
/// formula from the scores on. Its queries, keys, values and gates are to be provided.
Inputs group_of(const Inputs& in, std::size_t b, std::size_t g);

/// The same of one query head: B = H = G = 1.
Inputs head_of(const Inputs& in, std::size_t b, std::size_t h);

/// Keys [first, first + count) of a problem.
struct KeySpan {
  std::size_t first = 0, count = 0;
};

/// From the first to the last key that some row sees; all if these are not known. From key 0 if
/// biases or lists depend on the numbers of keys.
KeySpan seen_keys(const Inputs& in);

/// The problem from its scores to its context with these keys only, which must include seen_keys().
/// Copies the part of each mask and bias for all queries.
Inputs with_keys(const Inputs& in, const KeySpan& keys);

/// Matrix (b, h) of a tensor (B, H, ...), whose first two axes may have length 1: (1, 1, ...),
/// without a copy.
Tensor matrix_of(const Tensor& tensor, std::size_t b, std::size_t h);

/// Elements [first, first + count) of an axis; without a copy if it is the first one, or if all
/// before it have length 1.
Tensor sliced(const Tensor& tensor, std::size_t axis, std::size_t first, std::size_t count);

/// How many of in.rows to compute at a time, so that a matrix of their scores has at most
/// `most_scores` elements, or one row for each item and head; at least 1. With a multiple of
/// kProductRows (attention/gemm.h), products of the parts have the bytes of the whole. Fewer rows
/// are a power of 2, so that processes that divide a problem between such blocks have the same
/// parts.
std::size_t rows_at_a_time(const Inputs& in, std::size_t most_scores);

/// The most scores that the reference path computes at once where it need not keep them.
inline constexpr std::size_t kMostReferenceScores = std::size_t{1} << 22;

/// rows_at_a_time() of the reference path; in.rows.size() if these outputs depend on the weights of
/// all queries.
std::size_t reference_rows_at_a_time(const Inputs& in, const OutputSet& outputs);

/// Copies a part of a tensor's rows, from row `first` of `axis` on, to `whole`. The first part
/// creates it, with `rows` rows.
void put_part(const Tensor& part, std::size_t axis, std::size_t first, std::size_t rows,
              Tensor& whole);

}  // namespace attn
