// Time measurements, and the machine's peak rate measured at the same time: on a shared machine
// only their ratio is stable.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "attn/kernel/thread_pool.h"

namespace attn::bench {

struct Seconds {
  double wall = 0;  ///< elapsed
  double cpu = 0;   ///< processor time of all threads of the process
};
Seconds seconds_of(const std::function<void()>& work);

/// An amount of work, in floating point operations or bytes, and its time.
struct Measurement {
  double amount = 0;
  Seconds seconds;

  double rate() const { return amount / seconds.wall; }
  double cpu_rate() const { return amount / seconds.cpu; }
};

/// Runs multiply-adds in registers on all threads of the pool; the amount is in flops.
template <class T>
Measurement measure_peak(kernel::ThreadPool& pool);

/// Reads arrays with all threads of the pool, `times` times: from memory, or from the caches if
/// they fit. The arrays are those of the workload, because others would replace them in the caches.
Measurement measure_reading(kernel::ThreadPool& pool,
                            std::span<const std::span<const std::byte>> arrays, int times);

/// Median, minimum and maximum of several measurements.
struct Summary {
  double median = 0, min = 0, max = 0;
};
Summary summarize(std::vector<double> values);

}  // namespace attn::bench
