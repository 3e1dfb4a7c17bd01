#include "attn/kernel/kernels.h"

namespace attn::kernel {

template <class T>
const Kernels<T>& kernels(Isa isa) {
  static const Kernels<T> baseline = baseline_kernels<T>();
#if defined(__x86_64__)
  if (isa == Isa::avx512) {
    static const Kernels<T> avx512 = avx512_kernels<T>();
    return avx512;
  }
  if (isa == Isa::avx2) {
    static const Kernels<T> avx2 = avx2_kernels<T>();
    return avx2;
  }
#else
  static_cast<void>(isa);
#endif
  return baseline;
}

template const Kernels<float>& kernels(Isa);
template const Kernels<double>& kernels(Isa);

}  // namespace attn::kernel
