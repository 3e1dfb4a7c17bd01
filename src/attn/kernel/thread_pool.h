// A thread pool that runs numbered tasks, and buffers that are kept between calls, so that their
// pages are faulted in only once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "attn/kernel/isa.h"

namespace attn::kernel {

class Arena {
 public:
  /// Blocks of this size and more are in huge pages if the system has them.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  /// Returns at least `bytes` of memory, aligned to cache lines, with undefined contents.
  /// Invalidates the result of earlier calls. Throws std::bad_alloc.
  std::byte* reserve(std::size_t bytes);

  /// The memory that reserve() takes from the system, alignment included.
  static std::size_t memory_for(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace attn::kernel

namespace attn::kernel {

/// Starts threads in the first run() that needs more than one worker.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads = available_cpus());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return threads_; }  ///< at least 1, including the caller's

  /// Whether this is a copy of a pool that had started threads before fork(), which copies only the
  /// thread that calls it. The copy can neither be used nor destroyed.
  bool is_copy_without_threads() const;

  /// Called with the task's number and the worker (0 .. threads() - 1) that runs it.
  using Task = std::function<void(std::size_t task, std::size_t worker)>;

  /// How tasks are assigned to workers.
  enum class Order {
    ascending,  ///< a free worker takes the next task
    shares,  ///< each worker first takes the same consecutive tasks in every run, then helps others
  };

  /// Runs every task once on at most `workers` threads, including the caller's (worker 0), and
  /// returns when all have ended. If a task throws, tasks that have not started are skipped and the
  /// first exception is rethrown. Must not be called from a task or from two threads at once.
  void run(std::size_t tasks, std::size_t workers, const Task& task,
           Order order = Order::ascending);

  /// Scratch memory of one worker, and memory shared by all; both are kept between runs.
  Arena& scratch(std::size_t worker) { return scratch_[worker]; }
  Arena& shared() { return shared_; }

 private:
  /// Tasks [next, end) have not been started.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  void start_helpers(std::size_t count);
  void share_out(std::size_t tasks, std::size_t shares);
  void post(std::size_t workers, const Task& task);
  void wait_for_helpers();
  void help(std::size_t worker, std::uint64_t last_job);
  std::uint64_t await_job(std::uint64_t last_job);
  void leave();
  void work(std::size_t worker);

  std::size_t threads_;
  std::vector<Arena> scratch_;
  Arena shared_;
  std::vector<std::thread> helpers_;
  pid_t process_ = 0;  ///< that the helpers belong to

  // A run of a few microseconds must not wait for a lock or for a thread to wake up, so waiting
  // threads poll these variables before they sleep. All are sequentially consistent: either a
  // helper sees that the run is closed, or the caller sees that the helper is busy.
  alignas(64) std::atomic<std::size_t> busy_{0};   ///< helpers that are working on the open run
  alignas(64) std::atomic<std::uint64_t> job_{0};  ///< number of the latest run
  std::atomic<std::uint64_t> open_job_{0};         ///< run that helpers may still join; 0: none
  std::atomic<bool> stop_{false};

  // The open run: written before it is opened, unchanged until all helpers have left.
  const Task* task_ = nullptr;
  std::size_t workers_ = 0, shares_used_ = 0;
  std::vector<Share> shares_;
  std::exception_ptr failure_;  ///< guarded by mutex_

  std::mutex mutex_;  ///< of sleeping threads
  std::condition_variable job_posted_, all_left_;
  std::atomic<std::size_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
};

}  // namespace attn::kernel
