// The kernels for x86-64-v4 (AVX-512 F, BW, CD, DQ, VL). CMake sets the instruction set of this
// file.
#if defined(__x86_64__)
#include "attn/kernel/attention-inl.h"
#include "attn/kernel/kernels.h"

namespace attn::kernel {

template <class T>
Kernels<T> avx512_kernels() {
  return HWY_NAMESPACE::make_kernels<T>();
}

template Kernels<float> avx512_kernels();
template Kernels<double> avx512_kernels();

}  // namespace attn::kernel
#endif
