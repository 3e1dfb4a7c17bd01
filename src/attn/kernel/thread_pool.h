// Threads that share out numbered tasks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "attn/kernel/arena.h"
#include "attn/kernel/cpus.h"

namespace attn::kernel {

/// Starts no thread before the first run() that asks for more than one worker.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads = available_cpus());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return threads_; }  ///< at least 1, the caller's own included

  /// What a task does: its number, and the worker (0 .. threads() - 1) that it runs on.
  using Task = std::function<void(std::size_t task, std::size_t worker)>;

  /// Who takes which task.
  enum class Order {
    ascending,  ///< whoever is free takes the next one
    shares,     ///< each worker takes neighbours, the same in every run, and then helps others out
  };

  /// Runs every task once, on at most `workers` threads, the caller's among them (worker 0);
  /// returns when all have ended. After a task has thrown, tasks not yet started are left out and
  /// the first exception is thrown on. Not to be called from a task or from two threads at once.
  void run(std::size_t tasks, std::size_t workers, const Task& task,
           Order order = Order::ascending);

  /// Scratch memory of one worker, and memory that all share, both kept between runs.
  Arena& scratch(std::size_t worker) { return scratch_[worker]; }
  Arena& shared() { return shared_; }

 private:
  /// Tasks [next, end) are still to be started.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  void start_helpers(std::size_t count);
  void share_out(std::size_t tasks, std::size_t shares);
  void post(std::size_t workers, const Task& task);
  void wait_for_helpers();
  void help(std::size_t worker, std::uint64_t seen);
  std::uint64_t await_job(std::uint64_t seen);
  void leave();
  void work(std::size_t worker);

  std::size_t threads_;
  std::vector<Arena> scratch_;
  Arena shared_;
  std::vector<std::thread> helpers_;

  // A run of a few microseconds must not wait for a lock, nor for a thread to wake: who waits looks
  // at these for a while, and only then sleeps. All are sequentially consistent: of "I have come"
  // and "it is closed" at least one is seen by the other side.
  alignas(64) std::atomic<std::size_t> busy_{0};   ///< helpers that have come and not yet left
  alignas(64) std::atomic<std::uint64_t> job_{0};  ///< counts runs
  std::atomic<std::uint64_t> open_job_{0};         ///< the run that helpers may still join; 0: none
  std::atomic<bool> stop_{false};

  // The run that is open: written before it is opened, unchanged until all have left.
  const Task* task_ = nullptr;
  std::size_t workers_ = 0, shares_used_ = 0;
  std::vector<Share> shares_;
  std::exception_ptr failure_;  ///< under mutex_

  std::mutex mutex_;  ///< of those that sleep
  std::condition_variable job_posted_, all_left_;
  std::atomic<std::size_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
};

}  // namespace attn::kernel
