// Attention of a block of query rows: by streaming over key blocks (stream-inl.h) or on a strip of
// whole rows (strip-inl.h), which both leave a partial that merge() folds and finish() writes out;
// where keys are few, at once (single-inl.h).
#pragma once

#include "attn/kernel/kernels.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/peak-inl.h"
#include "attn/kernel/single-inl.h"
#include "attn/kernel/stream-inl.h"
#include "attn/kernel/strip-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.geometry = {kLanes<T>, kPanel<T>, kTileRows, kGroupRows};
  kernels.pack_keys = pack_keys<T>;
  kernels.pack_values = pack_values<T>;
  kernels.begin = begin<T>;
  kernels.stream = stream<T>;
  kernels.strip = strip<T>;
  kernels.merge = merge<T>;
  kernels.finish = finish<T>;
  kernels.single = single<T>;
  kernels.multiply_add = multiply_add<T>;
  return kernels;
}

}  // namespace attn::kernel::HWY_NAMESPACE
