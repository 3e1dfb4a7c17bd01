// Times beside the machine's peak at that very moment: on a shared machine only the ratio is
// steady.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "attn/kernel/thread_pool.h"

namespace attn::bench {

double seconds_of(const std::function<void()>& work);

/// Multiply-adds in registers on all of the pool's threads: floating point operations a second.
template <class T>
double peak_flops(kernel::ThreadPool& pool);

/// Bytes a second at which all of the pool's threads read `bytes`, which stand in memory already.
double read_rate(kernel::ThreadPool& pool, std::size_t bytes);

/// The middle of several measurements and how far they are apart.
struct Summary {
  double median = 0, least = 0, most = 0;
};
Summary summarize(std::vector<double> values);

}  // namespace attn::bench
