// The kernel tables of all instruction sets: the same source, compiled once for each.
#pragma once

#include "attn/kernel/kernels.h"

namespace attn::kernel {

template <class T>
Kernels<T> baseline_kernels();
template <class T>
Kernels<T> avx2_kernels();
template <class T>
Kernels<T> avx512_kernels();

}  // namespace attn::kernel
