// Attention, fast: what core/ computes by the formula, from packed blocks and vector kernels.
//
// Ways over one micro-kernel:
//   streaming  blocks of keys, each with a softmax of its own, folded together in key order
//              (Milakov & Gimelshein, arXiv:1805.02867; Dao, arXiv:2307.08691): O(L + S) memory;
//   strip      whole rows of scores, softmax in two passes: when weights, scores or what is between
//              them are asked for;
//   single     where all keys are one block: a softmax in two passes, and nothing to be folded.
// With few queries (decoding) the blocks of one row are computed side by side and folded in the
// same order after (Flash-Decoding), keys and values of the fewest read where they stand.
//
// The bytes of a row of results depend on its own inputs, the instruction set and the way only
// (strips with stages between scores and weights round these one by one): not on the number of
// threads, nor on the other rows, heads and batch items computed beside it. A row that sees NaN and
// +infinity has the logsumexp +infinity.
#pragma once

#include "attn/kernel/isa.h"
#include "attn/kernel/problem.h"
#include "attn/kernel/thread_pool.h"

namespace attn::kernel {

/// Computes `results` of `problem` (float or double). Errors against exact arithmetic come from the
/// dot products and sums over keys, in which at most 32 terms (128 of double) are added one by one,
/// then such sums of 512 keys, and then these; exponentials are within 1 unit in the last place,
/// and 0 where they are no longer normal numbers (below e^-87 and e^-708). Scaled scores of float
/// beyond 2.3e38 times the temperature count as infinite, whatever is added to them. Errors:
/// internal, for a head count that G does not divide. Throws std::bad_alloc, and what the sink
/// throws; results are undefined then.
template <class T>
void attend(const Problem<T>& problem, const Results<T>& results, ThreadPool& pool,
            Isa isa = active_isa());

}  // namespace attn::kernel
