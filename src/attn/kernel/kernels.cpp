#include "attn/kernel/kernels.h"

#include <type_traits>

#include "attn/base/error.h"

namespace attn::kernel {
namespace {

template <class T, Kernels<T> (*make)()>
const Kernels<T>& made_once() {
  static const Kernels<T> kernels = make();
  return kernels;
}

/// The same functions, which then multiply bfloat16 factors in another form.
template <class T, Kernels<T> (*make)(), FactorForm kBf16>
const Kernels<T>& made_once_for() {
  static const Kernels<T> kernels = [] {
    Kernels<T> changed = make();
    if (std::is_same_v<T, float>) changed.geometry.bf16_factors = kBf16;
    return changed;
  }();
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
    case Isa::avx512_bf16:
#ifdef ATTN_HAS_AVX512
      return made_once_for<T, avx512_kernels<T>, FactorForm::pairs>();
#endif
      break;
    case Isa::amx_bf16:
#ifdef ATTN_HAS_AVX512
      return made_once_for<T, avx512_kernels<T>, FactorForm::tiles>();
#endif
      break;
  }
  throw Error(ErrorKind::internal, "no kernels for " + std::string(name_of(isa)));
}

template const Kernels<float>& kernels(Isa);
template const Kernels<double>& kernels(Isa);

}  // namespace attn::kernel
