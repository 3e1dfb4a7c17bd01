// The formula through BLAS, a head at a time: what the kernels are measured beside.
#pragma once

#include "attn/kernel/problem.h"

namespace attn::bench {

/// scores = scale * Q K^T, softmax by rows in place, context = weights V, for contiguous operands
/// of type T; queries see the keys
/// [0, key_ranges[i].end). BLAS uses `threads` threads; the softmax is one.
template <class T>
void blas_attention(const kernel::Problem<T>& problem, T* context, std::size_t threads);

}  // namespace attn::bench
