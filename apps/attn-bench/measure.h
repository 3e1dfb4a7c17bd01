// Times beside the machine's peak at that very moment: on a shared machine only the ratio is
// steady.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "attn/kernel/thread_pool.h"

namespace attn::bench {

struct Seconds {
  double wall = 0;  ///< gone by
  double cpu = 0;   ///< spent by all of the process's threads
};
Seconds seconds_of(const std::function<void()>& work);

/// So much work, of floating point operations or bytes, in so much time.
struct Measurement {
  double amount = 0;
  Seconds seconds;

  double rate() const { return amount / seconds.wall; }
  double cpu_rate() const { return amount / seconds.cpu; }
};

/// Multiply-adds in registers on all of the pool's threads, in floating point operations.
template <class T>
Measurement measure_peak(kernel::ThreadPool& pool);

/// All of the pool's threads reading the same `bytes` or so again and again: from memory, or from
/// the caches where they fit.
Measurement measure_reading(kernel::ThreadPool& pool, std::size_t bytes, int times);

/// The middle of several measurements and how far they are apart.
struct Summary {
  double median = 0, least = 0, most = 0;
};
Summary summarize(std::vector<double> values);

}  // namespace attn::bench
