#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "attn/kernel/kernels.h"

namespace attn::bench {

namespace {

double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

Seconds seconds_of(const std::function<void()>& work) {
  const double cpu = cpu_now();
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  return {wall.count(), cpu_now() - cpu};
}

template <class T>
Measurement measure_peak(kernel::ThreadPool& pool) {
  constexpr std::size_t kTasksOfThread = 20, kRounds = 40000;
  const auto multiply_add = kernel::kernels<T>(kernel::active_isa()).multiply_add;
  std::atomic<std::uint64_t> flops{0};
  const Seconds seconds = seconds_of([&] {
    pool.run(pool.threads() * kTasksOfThread, pool.threads(), [&](std::size_t, std::size_t) {
      flops += static_cast<std::uint64_t>(multiply_add(kRounds));
    });
  });
  return {static_cast<double>(flops), seconds};
}

Measurement measure_reading(kernel::ThreadPool& pool,
                            std::span<const std::span<const std::byte>> arrays, int times) {
  const std::size_t tasks = pool.threads() * 16;
  std::atomic<std::uint64_t> total{0};
  const auto read = [&](std::size_t task, std::size_t) {
    std::uint64_t sums[32] = {};  // independent sums, so that loads do not wait for additions
    for (const std::span<const std::byte> array : arrays) {
      const std::size_t share = array.size() / sizeof(std::uint64_t) / tasks;
      const std::byte* const from = array.data() + task * share * sizeof(std::uint64_t);
      for (std::size_t i = 0; i + 32 <= share; i += 32)
        for (std::size_t j = 0; j < 32; ++j) {
          std::uint64_t word = 0;
          std::memcpy(&word, from + (i + j) * sizeof word, sizeof word);
          sums[j] += word;
        }
    }
    for (std::uint64_t sum : sums) total += sum;
  };
  const auto all = [&] {
    for (int time = 0; time < times; ++time) pool.run(tasks, pool.threads(), read);
  };
  all();  // loads the caches
  const Seconds seconds = seconds_of(all);
  [[maybe_unused]] static volatile std::uint64_t used;  // keeps the compiler from removing the loop
  used = total;
  std::size_t bytes = 0;
  for (const std::span<const std::byte> array : arrays) bytes += array.size();
  return {static_cast<double>(bytes) * times, seconds};
}

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

template Measurement measure_peak<float>(kernel::ThreadPool&);
template Measurement measure_peak<double>(kernel::ThreadPool&);

}  // namespace attn::bench
