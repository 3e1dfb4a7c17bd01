// The kernels for every machine of this architecture.
#include "attn/kernel/attention-inl.h"
#include "attn/kernel/kernels.h"

namespace attn::kernel {

template <class T>
Kernels<T> baseline_kernels() {
  return HWY_NAMESPACE::make_kernels<T>();
}

template Kernels<float> baseline_kernels();
template Kernels<double> baseline_kernels();

}  // namespace attn::kernel
