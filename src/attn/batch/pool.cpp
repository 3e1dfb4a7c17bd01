#include "attn/batch/pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/finished_items.h"
#include "attn/batch/signal_blocker.h"

namespace attn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPipeBuffer = 65536;  // bytes: smaller texts are written together

/// Reduces the power and the shared execution resources that a spinning thread uses.
void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins before it sleeps, because the mutexes are held for less than a microsecond, while waking a
/// thread takes about ten, as long as a small job.
std::unique_lock<std::mutex> spin_lock(std::mutex& mutex) {
  constexpr int kAttempts = 100, kPauses = 32;
  std::unique_lock lock(mutex, std::try_to_lock);
  for (int attempt = 0; !lock && attempt < kAttempts; ++attempt) {
    for (int pause = 0; pause < kPauses; ++pause) pause_processor();
    if (lock.try_lock()) return lock;
    if (attempt > kAttempts / 2) std::this_thread::yield();
  }
  if (!lock) lock.lock();
  return lock;
}

/// An item that has been started.
struct Task {
  enum class Owner { none, worker, timeout };

  Item item;
  std::size_t sequence = 0;  ///< among the items started
  double limit = 0;          ///< seconds; 0: none
  Clock::time_point start = Clock::now();
  std::atomic<Owner> owner = Owner::none;  ///< who reports its outcome

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  bool is_late() const { return limit > 0 && seconds() >= limit; }
  Outcome overdue_outcome() const { return attn::overdue_outcome(item, limit, seconds()); }

  /// Whether `candidate` is the owner now; the first candidate becomes it.
  bool acquire(Owner candidate) {
    Owner expected = Owner::none;
    return owner.compare_exchange_strong(expected, candidate) || expected == candidate;
  }

  /// Must not outlive the task.
  CompletionToken token() {
    const auto acquire_in_time = [this] {
      return owner == Owner::worker || (!is_late() && acquire(Owner::worker));
    };
    return {acquire_in_time, [this] { return owner == Owner::timeout; }};
  }
};

struct Worker {
  std::thread thread;
  bool abandoned = false;  ///< its item is over the time limit

  void set_task(std::shared_ptr<Task> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
  }
  std::shared_ptr<Task> task() {
    const std::lock_guard lock(mutex_);
    return task_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Task> task_;
};

/// Shared with every worker thread, because overdue workers outlive run_pool().
class WorkerPool : public std::enable_shared_from_this<WorkerPool> {
 public:
  WorkerPool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
             std::atomic<bool>& stop)
      : source_(source),
        options_(options),
        calls_(calls),
        stop_(stop),
        finished_(options.in_order, options.max_waiting) {}

  PoolEnd run();

 private:
  void tick();
  void start_worker();
  void work(Worker& self);
  std::shared_ptr<Task> start_item(Worker& self);
  void end_worker(Worker& self);
  void report_ready(std::unique_lock<std::mutex>& lock,
                    Clock::time_point deadline = Clock::time_point::max());
  // These require mutex_ to be held:
  void finish(std::size_t sequence, Outcome outcome);
  bool may_defer_report() const;
  void fail(std::exception_ptr fault);
  void abandon_overdue();

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls calls_;
  std::atomic<bool>& stop_;

  std::mutex source_mutex_;            ///< locked before mutex_
  std::size_t started_ = 0;            ///< items; guarded by source_mutex_
  std::atomic<bool> is_full_ = false;  ///< start no item until some outcomes are reported
  std::mutex report_mutex_;            ///< for calls_.report and calls_.tick; mutex_ is not held
  std::mutex mutex_;                   ///< guards the members below
  std::condition_variable worker_ended_, reported_;
  std::list<Worker> workers_;
  std::size_t live_ = 0, overdue_ = 0;
  std::exception_ptr fault_;
  FinishedItems finished_;
  bool reporting_ = false;  ///< a thread is reporting
};

PoolEnd WorkerPool::run() {
  std::unique_lock lock(mutex_);
  try {
    for (std::size_t i = 0; i < options_.threads; ++i) start_worker();
  } catch (...) {
    fail(std::current_exception());  // threads that were started must end first
  }
  for (bool all_ended = false; !all_ended;) {  // once more after the last worker has ended
    all_ended = worker_ended_.wait_for(lock, kTickInterval, [&] { return live_ == 0; });
    try {
      if (options_.timeout > 0) abandon_overdue();
      // Only this thread ticks, so it must not report forever; workers report, too.
      report_ready(lock, all_ended ? Clock::time_point::max() : Clock::now() + kTickInterval);
      lock.unlock();
      tick();
      lock.lock();
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      fail(std::current_exception());
    }
  }
  const PoolEnd end{fault_, overdue_};
  lock.unlock();
  for (Worker& worker : workers_) {
    if (worker.abandoned)
      worker.thread.detach();
    else
      worker.thread.join();
  }
  return end;
}

void WorkerPool::tick() {
  const std::lock_guard lock_report(report_mutex_);
  calls_.tick();
}

void WorkerPool::start_worker() {
  const SignalBlocker blocker;
  Worker& worker = workers_.emplace_back();
  try {
    worker.thread = std::thread([self = shared_from_this(), &worker] { self->work(worker); });
  } catch (const std::system_error&) {  // no more threads: go on with those that were started
    workers_.pop_back();
    if (live_ == 0) throw Error(ErrorKind::busy, "no thread could be started");
    return;
  } catch (...) {
    workers_.pop_back();
    throw;
  }
  ++live_;
}

void WorkerPool::work(Worker& self) {
  try {
    calls_.begin();
    std::string text_buffer;
    while (const std::shared_ptr<Task> task = start_item(self)) {
      const CompletionToken token = task->token();
      Outcome outcome = calls_.work(task->item, token, std::move(text_buffer));
      outcome.seconds = task->seconds();
      if (!token.acquire()) {
        // If it has been reported as overdue, another worker has replaced this one.
        if (!task->acquire(Task::Owner::worker)) break;
        if (outcome.status != Status::skipped) outcome = task->overdue_outcome();
      }
      std::unique_lock lock = spin_lock(mutex_);
      finish(task->sequence, std::move(outcome));
      text_buffer = finished_.spare_text();
      if (!may_defer_report()) report_ready(lock);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail(std::current_exception());
  }
  end_worker(self);
}

void WorkerPool::end_worker(Worker& self) {
  const std::lock_guard lock(mutex_);
  self.set_task(nullptr);
  if (self.abandoned)
    --overdue_;
  else
    --live_;
  worker_ended_.notify_all();
}

/// Returns nullptr if no more items are to be started.
std::shared_ptr<Task> WorkerPool::start_item(Worker& self) {
  const std::unique_lock source_lock = spin_lock(source_mutex_);
  if (is_full_) {
    std::unique_lock lock(mutex_);
    reported_.wait(lock, [&] { return stop_ || !is_full_; });
  }
  if (stop_) return nullptr;
  std::optional<Item> item = source_.next();
  if (!item || stop_) return nullptr;
  const auto task = std::make_shared<Task>();
  task->item = std::move(*item);
  task->sequence = started_++;
  task->limit = options_.timeout;
  self.set_task(task);
  return task;
}

void WorkerPool::finish(std::size_t sequence, Outcome outcome) {
  if (outcome.status == Status::failed && options_.fail_fast) {
    stop_ = true;
    reported_.notify_all();
  }
  finished_.add(sequence, std::move(outcome));
  is_full_ = finished_.is_full();
}

/// Whether reporting can wait: while more items can be started immediately, small texts are
/// collected and written together, at the next tick at the latest.
bool WorkerPool::may_defer_report() const {
  return options_.in_order && source_.has_more() && !stop_ && finished_.bytes() < kPipeBuffer &&
         !finished_.is_half_full();
}

/// Reports until nothing is ready or the deadline has passed. Returns at once if another thread is
/// reporting: that thread also reports these outcomes, so no worker waits for output.
void WorkerPool::report_ready(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
  if (reporting_) return;
  do {
    std::vector<Outcome> ready = finished_.take();
    if (ready.empty()) return;
    reporting_ = true;  // stays true if report() throws: nothing is reported after that
    lock.unlock();
    {
      const std::lock_guard lock_report(report_mutex_);
      calls_.report(ready);
    }
    lock.lock();
    reporting_ = false;
    finished_.forget(ready);
    is_full_ = finished_.is_full();
    reported_.notify_all();
  } while (Clock::now() < deadline);
}

void WorkerPool::fail(std::exception_ptr fault) {
  if (!fault_) fault_ = std::move(fault);
  stop_ = true;
  reported_.notify_all();
}

void WorkerPool::abandon_overdue() {
  for (Worker& worker : workers_) {
    const std::shared_ptr<Task> task = worker.task();
    if (worker.abandoned || task == nullptr) continue;
    if (!task->is_late() || !task->acquire(Task::Owner::timeout)) continue;
    worker.abandoned = true;
    --live_;
    ++overdue_;
    finish(task->sequence, task->overdue_outcome());
    if (!stop_) start_worker();
  }
}

}  // namespace

Outcome overdue_outcome(const Item& item, double limit, double seconds) {
  const auto three_digits = [](double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", number);
    return std::string(text);
  };
  Outcome outcome{.number = item.number, .name = item.name, .status = Status::failed};
  outcome.seconds = seconds;
  outcome.error = {printable(item.name) + ": took more than " + three_digits(limit) +
                   " s (--timeout), abandoned after " + three_digits(seconds) + " s"};
  outcome.code = static_cast<int>(ErrorKind::busy);
  return outcome;
}

PoolEnd run_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                 std::atomic<bool>& stop) {
  return std::make_shared<WorkerPool>(source, options, calls, stop)->run();
}

}  // namespace attn
