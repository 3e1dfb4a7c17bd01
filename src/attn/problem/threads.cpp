#include "attn/problem/threads.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "attn/kernel/thread_pool.h"

namespace attn {
namespace {

thread_local std::size_t t_threads = 0;
/// Leaves the copy of a pool in a forked process as it is.
struct DeletePool {
  void operator()(kernel::ThreadPool* pool) const {
    if (!pool->is_copy_without_threads()) delete pool;
  }
};
thread_local std::unique_ptr<kernel::ThreadPool, DeletePool> t_pool;

/// Gives the calling thread one thread and a pool of its own, until the destructor.
class SerialTask {
 public:
  SerialTask() : threads_(std::exchange(t_threads, 1)), pool_(std::move(t_pool)) {}
  SerialTask(const SerialTask&) = delete;
  SerialTask& operator=(const SerialTask&) = delete;
  ~SerialTask() {
    t_pool = std::move(pool_);
    t_threads = threads_;
  }

 private:
  std::size_t threads_;
  std::unique_ptr<kernel::ThreadPool, DeletePool> pool_;
};

}  // namespace

void run_in_parallel(std::size_t count, std::size_t most,
                     const std::function<void(std::size_t)>& compute) {
  kernel::ThreadPool& pool = thread_pool();
  if (std::min({count, most, pool.threads()}) <= 1) {
    for (std::size_t i = 0; i < count; ++i) compute(i);
    return;
  }
  pool.run(count, std::min(most, pool.threads()), [&](std::size_t i, std::size_t) {
    const SerialTask one;
    compute(i);
  });
}

kernel::ThreadPool& thread_pool() {
  if (!t_pool || t_pool->is_copy_without_threads())
    t_pool.reset(new kernel::ThreadPool(thread_count()));
  return *t_pool;
}

std::size_t thread_count() { return t_threads == 0 ? kernel::available_cpus() : t_threads; }

void set_threads(std::size_t threads) {
  // When a thread first uses its pool, the C library registers the pool's destructor and aborts if
  // it cannot allocate memory for this. The test allocation here throws std::bad_alloc instead.
  constexpr std::size_t kNoteBytes = 64;
  ::operator delete(::operator new(kNoteBytes));
  if (threads == t_threads) return;  // and keep the threads of earlier computations
  t_threads = threads;
  t_pool.reset();
}

}  // namespace attn
