// Multiply-adds in registers, for measuring the machine's peak.
#pragma once

#include "attn/kernel/simd-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

/// Kernels::multiply_add.
template <class T>
double multiply_add(std::size_t rounds) {
  constexpr std::size_t kSums = 12;  // enough to hide the latency of two units
  const Tag<T> d;
  Vec<T> sums[kSums];
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::Set(d, T(1) + static_cast<T>(i));
  const Vec<T> factor = hn::Set(d, T(0.999)), term = hn::Set(d, T(0.001));
  for (std::size_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  }
  Vec<T> all = sums[0];
  for (std::size_t i = 1; i < kSums; ++i) all = hn::Add(all, sums[i]);
  volatile T kept = hn::GetLane(all);  // keeps the compiler from removing the loop
  static_cast<void>(kept);
  return 2.0 * kSums * kLanes<T> * static_cast<double>(rounds);
}

}  // namespace attn::kernel::HWY_NAMESPACE
