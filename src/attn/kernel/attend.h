// Fused attention: computes scores, weights and context in one pass, from packed blocks and with
// vector instructions.
//
// Three algorithms use the same micro-kernel:
//   streaming     blocks of keys with an online softmax, O(L + S) memory
//                 (arXiv:1805.02867, arXiv:2307.08691);
//   full rows     whole rows of scores and a two-pass softmax, if weights or scores are requested;
//   single block  a two-pass softmax, if all keys fit into one key block.
// If there are few queries, as in decoding, the key blocks are computed in parallel, also by
// several processes, and then merged in the same order (Flash-Decoding), and keys and values are
// read in place.
//
// The bytes of a row of results depend only on its own inputs, the instruction set and the
// algorithm (full rows with scaled or masked scores round each of these). They do not depend on the
// number of threads or on other rows, heads and batch items. A row that sees both NaN and +infinity
// has the logsumexp +infinity.
#pragma once

#include <atomic>
#include <cstddef>

#include "attn/kernel/isa.h"
#include "attn/kernel/problem.h"
#include "attn/kernel/thread_pool.h"

namespace attn::kernel {

/// Computes `results` of `problem`; T is float or double. Dot products and sums over keys add at
/// most 32 terms (128 of double, 64 of pairs of bfloat16) one by one; these partial sums are added
/// within each block of 512 keys, and then the sums of the blocks. Exponentials are within 1 unit
/// in the last place; results that would be subnormal (below e^-87 and e^-708) are 0. Scaled scores
/// of float beyond 2.3e38 times the temperature count as infinite, whatever the biases. Throws
/// Error (internal) if H is not a multiple of G, std::bad_alloc, and what `on_rows` throws; results
/// are then undefined.
template <class T>
void attend(const AttentionProblem<T>& problem, const Results<T>& results, ThreadPool& pool,
            Isa isa = active_isa());

/// From now on, attend() adds the number of rows that it has computed to `rows`, block by block;
/// with nullptr it does not count.
void count_rows(std::atomic<std::size_t>* rows);

/// Whether each pair of a batch item and a key/value head has so few query rows that its key blocks
/// can be computed independently, if no rows of scores or weights are requested, and whether it
/// has more than one.
bool can_split_keys(std::size_t B, std::size_t H, std::size_t G, std::size_t L, std::size_t S);

}  // namespace attn::kernel
