// The kernels for machines with AVX2, FMA and F16C; compiled with flags of its own.
#if defined(__x86_64__)
#include "attn/kernel/attention-inl.h"
#include "attn/kernel/kernel_tables.h"

namespace attn::kernel {

template <class T>
Kernels<T> avx2_kernels() {
  return HWY_NAMESPACE::make_kernels<T>();
}

template Kernels<float> avx2_kernels();
template Kernels<double> avx2_kernels();

}  // namespace attn::kernel
#endif
