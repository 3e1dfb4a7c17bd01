#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "attn/kernel/kernels.h"

namespace attn::bench {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
double peak_flops(kernel::ThreadPool& pool) {
  constexpr std::size_t kTasksOfThread = 20, kRounds = 40000;
  const auto multiply_add = kernel::kernels<T>(kernel::active_isa()).multiply_add;
  std::atomic<std::uint64_t> flops{0};
  const double seconds = seconds_of([&] {
    pool.run(pool.threads() * kTasksOfThread, pool.threads(), [&](std::size_t, std::size_t) {
      flops += static_cast<std::uint64_t>(multiply_add(kRounds));
    });
  });
  return static_cast<double>(flops) / seconds;
}

double read_rate(kernel::ThreadPool& pool, std::size_t bytes) {
  static std::vector<std::uint64_t> memory;
  const std::size_t words = bytes / sizeof(std::uint64_t);
  if (memory.size() < words) memory.assign(words, 1);
  const std::size_t tasks = pool.threads() * 16, share = words / tasks;
  std::atomic<std::uint64_t> total{0};
  const double seconds = seconds_of([&] {
    pool.run(tasks, pool.threads(), [&](std::size_t task, std::size_t) {
      const std::uint64_t* from = memory.data() + task * share;
      std::uint64_t sums[32] = {};  // many, so that loads do not wait for additions
      for (std::size_t i = 0; i + 32 <= share; i += 32)
        for (std::size_t j = 0; j < 32; ++j) sums[j] += from[i + j];
      std::uint64_t sum = 0;
      for (std::uint64_t s : sums) sum += s;
      total += sum;
    });
  });
  return total == 0 ? 0 : static_cast<double>(tasks * share * sizeof(std::uint64_t)) / seconds;
}

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

template double peak_flops<float>(kernel::ThreadPool&);
template double peak_flops<double>(kernel::ThreadPool&);

}  // namespace attn::bench
