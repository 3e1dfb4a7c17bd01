// The table of kernels of the instruction set that this is compiled for.
#pragma once

#include "attn/kernel/full_rows-inl.h"
#include "attn/kernel/kernels.h"
#include "attn/kernel/pack_keys-inl.h"
#include "attn/kernel/peak-inl.h"
#include "attn/kernel/single_block-inl.h"
#include "attn/kernel/stream-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class T>
Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.geometry = {kLanes<T>, kPanel<T>, kTileRows, kGroupRows};
  kernels.pack_keys = pack_keys<T>;
  kernels.pack_values = pack_values<T>;
  kernels.begin = begin<T>;
  kernels.stream = stream<T>;
  kernels.full_rows = full_rows<T>;
  kernels.merge = merge<T>;
  kernels.finish = finish<T>;
  kernels.single_block = single_block<T>;
  kernels.multiply_add = multiply_add<T>;
  return kernels;
}

}  // namespace attn::kernel::HWY_NAMESPACE
