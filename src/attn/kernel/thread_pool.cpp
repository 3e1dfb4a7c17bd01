#include "attn/kernel/thread_pool.h"

#include <algorithm>
#include <system_error>

namespace attn::kernel {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// A phase follows the one before within microseconds; a sleeping thread takes some fifty to wake.
constexpr int kSpins = 2000;

}  // namespace

ThreadPool::ThreadPool(std::size_t threads)
    : threads_(std::max<std::size_t>(1, threads)), scratch_(threads_) {}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ++job_;
  }
  job_posted_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::start_helpers(std::size_t count) {
  try {
    while (helpers_.size() < count)
      helpers_.emplace_back(&ThreadPool::help, this, helpers_.size() + 1, job_.load());
  } catch (const std::system_error&) {
    // The system grants no more threads: those that there are do all the work.
  }
}

void ThreadPool::run(std::size_t tasks, std::size_t workers, const Task& task) {
  workers = std::min({workers, tasks, threads_});
  if (workers <= 1) {
    for (std::size_t number = 0; number < tasks; ++number) task(number, 0);
    return;
  }
  start_helpers(workers - 1);
  {
    std::lock_guard lock(mutex_);
    task_ = &task;
    tasks_ = tasks;
    workers_ = workers;
    next_ = 0;
    failure_ = nullptr;
    open_ = true;
    ++job_;
  }
  job_posted_.notify_all();
  work(0);
  for (int spins = 0; spins < kSpins && busy_ != 0; ++spins) pause();
  std::unique_lock lock(mutex_);
  open_ = false;  // nothing is left to start: whoever has not woken yet need not be waited for
  all_left_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

/// Waits for a run after `seen`; whether this worker is to take part in it.
bool ThreadPool::join(std::size_t worker, std::uint64_t& seen) {
  for (int spins = 0; spins < kSpins && job_ == seen; ++spins) pause();
  std::unique_lock lock(mutex_);
  job_posted_.wait(lock, [&] { return job_ != seen; });
  seen = job_;
  if (stop_ || !open_ || worker >= workers_) return false;
  ++busy_;
  return true;
}

void ThreadPool::help(std::size_t worker, std::uint64_t seen) {
  while (true) {
    const bool joined = join(worker, seen);
    if (joined) work(worker);
    std::lock_guard lock(mutex_);
    if (joined && --busy_ == 0) all_left_.notify_one();
    if (stop_) return;
  }
}

void ThreadPool::work(std::size_t worker) {
  for (std::size_t number = next_++; number < tasks_; number = next_++) {
    try {
      (*task_)(number, worker);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_ = tasks_;
    }
  }
}

}  // namespace attn::kernel
