// Unfused attention with BLAS, one head at a time, for comparison.
#pragma once

#include "attn/kernel/problem.h"

namespace attn::bench {

/// scores = scale * Q K^T, row-wise softmax in place, context = weights V, for contiguous operands
/// of type T. Queries see the keys [0, key_ranges[i].end). BLAS uses `threads` threads, the softmax
/// one.
template <class T>
void blas_attention(const kernel::AttentionProblem<T>& problem, T* context, std::size_t threads);

}  // namespace attn::bench
