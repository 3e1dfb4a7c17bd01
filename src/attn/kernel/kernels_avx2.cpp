// The kernels for x86-64-v3 (AVX2, FMA, F16C). CMake sets the instruction set of this file.
#if defined(__x86_64__)
#include "attn/kernel/attention-inl.h"
#include "attn/kernel/kernels.h"

namespace attn::kernel {

template <class T>
Kernels<T> avx2_kernels() {
  return HWY_NAMESPACE::make_kernels<T>();
}

template Kernels<float> avx2_kernels();
template Kernels<double> avx2_kernels();

}  // namespace attn::kernel
#endif
