#include "attn/kernel/thread_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include "attn/base/memory_limit.h"
#include "attn/kernel/kernels.h"

namespace attn::kernel {

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

namespace {
constexpr std::size_t alignment_of(std::size_t bytes) {
  return bytes < Arena::kHugePage ? 4096 : Arena::kHugePage;
}
}  // namespace

std::size_t Arena::memory_for(std::size_t bytes) {
  const std::size_t alignment = alignment_of(bytes);
  return round_up(bytes, alignment) + alignment;
}

std::byte* Arena::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return memory_.get();
  const std::size_t alignment = alignment_of(bytes);
  const std::size_t rounded = round_up(bytes, alignment);
  if (rounded < bytes) throw std::bad_alloc();
  memory_.reset();  // freed first, so that memory need not hold both blocks
  bytes_ = 0;
  check_allocation(rounded);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!memory_) throw std::bad_alloc();
  bytes_ = rounded;
  // Faulting in small pages takes longer than the kernels need to fill them. Failure is harmless.
  if (alignment == kHugePage) madvise(memory_.get(), rounded, MADV_HUGEPAGE);
  return memory_.get();
}

}  // namespace attn::kernel

namespace attn::kernel {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Polls a condition for a while, because runs often follow one another within microseconds, while
/// waking a sleeping thread takes about fifty.
template <class Condition>
bool spin_until(Condition condition) {
  constexpr int kSpins = 4000;
  for (int spins = 0; spins < kSpins; ++spins) {
    if (condition()) return true;
    pause();
  }
  return condition();
}

}  // namespace

ThreadPool::ThreadPool(std::size_t threads)
    : threads_(std::max<std::size_t>(1, threads)), scratch_(threads_), shares_(threads_) {}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++job_;
  std::unique_lock(mutex_).unlock();  // threads about to sleep now do so, and can be woken
  job_posted_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

bool ThreadPool::is_copy_without_threads() const {
  return !helpers_.empty() && process_ != getpid();
}

void ThreadPool::start_helpers(std::size_t count) {
  if (helpers_.empty()) process_ = getpid();
  try {
    while (helpers_.size() < count)
      helpers_.emplace_back(&ThreadPool::help, this, helpers_.size() + 1, job_.load());
  } catch (const std::system_error&) {
    // No more threads can be started: the existing ones do all the work.
  }
}

void ThreadPool::run(std::size_t tasks, std::size_t workers, const Task& task, Order order) {
  workers = std::min({workers, tasks, threads_});
  if (workers <= 1) {
    for (std::size_t number = 0; number < tasks; ++number) task(number, 0);
    return;
  }
  start_helpers(workers - 1);
  share_out(tasks, order == Order::shares ? workers : 1);
  post(workers, task);
  work(0);
  open_job_ = 0;  // no task is left: helpers that have not joined are not needed
  wait_for_helpers();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::share_out(std::size_t tasks, std::size_t shares) {
  shares_used_ = shares;
  for (std::size_t i = 0; i < shares; ++i) {
    shares_[i].next = i * tasks / shares;
    shares_[i].end = (i + 1) * tasks / shares;
  }
}

void ThreadPool::post(std::size_t workers, const Task& task) {
  task_ = &task;
  workers_ = workers;
  open_job_ = job_ + 1;
  ++job_;
  if (sleepers_ == 0) return;
  std::unique_lock(mutex_).unlock();
  job_posted_.notify_all();
}

void ThreadPool::wait_for_helpers() {
  if (spin_until([&] { return busy_ == 0; })) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  all_left_.wait(lock, [&] { return busy_ == 0; });
  caller_sleeps_ = false;
}

/// Waits for a run after `last_job` and returns its number.
std::uint64_t ThreadPool::await_job(std::uint64_t last_job) {
  if (!spin_until([&] { return job_ != last_job; })) {
    std::unique_lock lock(mutex_);
    ++sleepers_;
    job_posted_.wait(lock, [&] { return job_ != last_job; });
    --sleepers_;
  }
  return job_;
}

void ThreadPool::leave() {
  if (--busy_ != 0 || !caller_sleeps_) return;
  std::unique_lock(mutex_).unlock();
  all_left_.notify_one();
}

void ThreadPool::help(std::size_t worker, std::uint64_t last_job) {
  while (true) {
    last_job = await_job(last_job);
    if (stop_) return;
    ++busy_;
    if (open_job_ == last_job && worker < workers_) work(worker);
    leave();
  }
}

void ThreadPool::work(std::size_t worker) {
  for (std::size_t i = 0; i < shares_used_; ++i) {
    Share& share = shares_[(worker + i) % shares_used_];
    for (std::size_t task = share.next++; task < share.end; task = share.next++) {
      try {
        (*task_)(task, worker);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        for (Share& left : shares_) left.next = left.end;
      }
    }
  }
}

}  // namespace attn::kernel
