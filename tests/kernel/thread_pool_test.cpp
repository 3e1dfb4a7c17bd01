#include "attn/kernel/thread_pool.h"

#include <catch2/catch.hpp>
#include <stdexcept>

using attn::kernel::ThreadPool;

TEST_CASE("pool: every task runs once, on an existing worker", "[threads]") {
  for (std::size_t threads : {1, 2, 3, 4, 7}) {
    ThreadPool pool(threads);
    for (std::size_t tasks : {0, 1, 2, 5, 100, 3000})
      for (auto order : {ThreadPool::Order::ascending, ThreadPool::Order::shares}) {
        std::vector<std::atomic<int>> runs(tasks);
        std::atomic<bool> strange{false};
        pool.run(
            tasks, threads,
            [&](std::size_t task, std::size_t worker) {
              ++runs[task];
              if (worker >= threads) strange = true;
            },
            order);
        CHECK_FALSE(strange);
        for (const auto& count : runs) REQUIRE(count == 1);
      }
  }
}

TEST_CASE("pool: each worker starts with its own share", "[threads]") {
  ThreadPool pool(4);
  std::atomic<std::size_t> begun{0}, own{0};
  pool.run(
      4, 4,
      [&](std::size_t task, std::size_t worker) {
        own += task == worker;
        ++begun;
        while (begun < 4) std::this_thread::yield();  // until all workers have started
      },
      ThreadPool::Order::shares);
  CHECK(own == 4);
}

TEST_CASE("pool: a worker that has finished its share takes tasks of others", "[threads]") {
  ThreadPool pool(2);
  std::atomic<std::size_t> ended{0};
  pool.run(
      100, 2,
      [&](std::size_t task, std::size_t) {
        while (task == 0 && ended < 99)
          std::this_thread::yield();  // until all other tasks have ended
        ++ended;
      },
      ThreadPool::Order::shares);
  CHECK(ended == 100);
}

TEST_CASE("pool: a worker has one task at a time, and a limit on workers holds", "[threads]") {
  ThreadPool pool(4);
  for (std::size_t workers : {1, 2, 3, 4, 9}) {
    std::vector<std::atomic<int>> busy(4);
    std::atomic<bool> overlap{false}, beyond{false};
    pool.run(500, workers, [&](std::size_t, std::size_t worker) {
      if (busy[worker]++ != 0) overlap = true;
      if (worker >= workers) beyond = true;
      --busy[worker];
    });
    CHECK_FALSE(overlap);
    CHECK_FALSE(beyond);
  }
}

TEST_CASE("pool: the first exception is rethrown, and the pool remains usable", "[threads]") {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> runs{0};
    CHECK_THROWS_AS(pool.run(100, 3,
                             [&](std::size_t task, std::size_t) {
                               ++runs;
                               if (task == 5) throw std::runtime_error("task 5");
                             }),
                    std::runtime_error);
    CHECK(runs >= 6);
    runs = 0;
    pool.run(10, 3, [&](std::size_t, std::size_t) { ++runs; });
    CHECK(runs == 10);
  }
}

TEST_CASE("pool: many short consecutive runs", "[threads]") {
  ThreadPool pool(4);
  std::size_t total = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<std::size_t> sum{0};
    pool.run(8, 4, [&](std::size_t task, std::size_t) { sum += task; });
    total += sum;
  }
  CHECK(total == 2000 * 28);
}

TEST_CASE("pool: a run sees the writes of the previous one", "[threads]") {
  ThreadPool pool(4);
  std::vector<int> values(1000);
  for (int round = 0; round < 50; ++round)
    pool.run(values.size(), 4,
             [&](std::size_t task, std::size_t) { ++values[(task * 7 + round) % values.size()]; });
  for (int value : values) REQUIRE(value == 50);
}

TEST_CASE("arena: memory is reused, and grows", "[kernel]") {
  attn::kernel::Arena arena;
  std::byte* first = arena.reserve(100);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  CHECK(arena.reserve(50) == first);
  std::byte* big = arena.reserve(5 << 20);
  big[(5 << 20) - 1] = std::byte{1};
  CHECK(arena.reserve(4 << 20) == big);
  CHECK_THROWS_AS(arena.reserve(std::size_t(-1) / 2 * 2), std::bad_alloc);
}

TEST_CASE("cpus: at least one, and at most as many as the affinity permits", "[kernel]") {
  CHECK(attn::kernel::available_cpus() >= 1);
  CHECK(attn::kernel::available_cpus() <= std::thread::hardware_concurrency());
}
