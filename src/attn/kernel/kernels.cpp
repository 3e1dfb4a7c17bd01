#include "attn/kernel/kernels.h"

#include "attn/base/error.h"

namespace attn::kernel {
namespace {

template <class T, Kernels<T> (*make)()>
const Kernels<T>& made_once() {
  static const Kernels<T> kernels = make();
  return kernels;
}

}  // namespace

template <class T>
const Kernels<T>& kernels(Isa isa) {
  switch (isa) {
    case Isa::baseline:
#ifdef ATTN_HAS_BASELINE
      return made_once<T, baseline_kernels<T>>();
#endif
      break;
    case Isa::avx2:
#ifdef ATTN_HAS_AVX2
      return made_once<T, avx2_kernels<T>>();
#endif
      break;
    case Isa::avx512:
#ifdef ATTN_HAS_AVX512
      return made_once<T, avx512_kernels<T>>();
#endif
      break;
  }
  throw Error(ErrorKind::internal, "no kernels for " + std::string(name_of(isa)));
}

template const Kernels<float>& kernels(Isa);
template const Kernels<double>& kernels(Isa);

}  // namespace attn::kernel
