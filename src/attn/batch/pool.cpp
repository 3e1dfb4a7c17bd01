#include "attn/batch/pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "attn/base/error.h"
#include "attn/batch/finished_items.h"
#include "attn/batch/short_lock.h"
#include "attn/batch/signals_blocked.h"
#include "attn/batch/worker.h"

namespace attn {
namespace {

using Clock = Task::Clock;

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr std::size_t kMostWaiting = 1024;
constexpr std::size_t kWorthWriting = 65536;  // bytes of text: what a pipe holds

/// Held by each thread, as overdue ones outlive run_pool().
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
       std::atomic<bool>& stop)
      : source_(source),
        options_(options),
        calls_(calls),
        stop_(stop),
        finished_(options.in_order) {}

  PoolEnd run();

 private:
  void tick();
  void start_worker();
  void work(Worker& self);
  std::shared_ptr<Task> take(Worker& self);
  void end_worker(Worker& self);
  void report_ready(std::unique_lock<std::mutex>& lock,
                    Clock::time_point late = Clock::time_point::max());
  // With mutex_ held:
  void finish(std::size_t place, Outcome outcome);
  void look_for_room();
  bool may_wait() const;
  void fail(std::exception_ptr fault);
  void give_up_overdue();

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls calls_;
  std::atomic<bool>& stop_;

  std::mutex source_mutex_;               ///< taken before mutex_ where both are
  std::size_t started_ = 0;               ///< items taken from the source; under its mutex
  std::atomic<bool> is_full_ = false;     ///< no more are to be taken until some are reported
  std::mutex report_mutex_;               ///< of the caller's report and tick; taken alone
  std::mutex mutex_;                      ///< of all below
  std::condition_variable ended_, room_;  ///< a worker has ended; fewer outcomes wait
  std::list<Worker> workers_;
  std::size_t live_ = 0, overdue_ = 0;
  std::exception_ptr fault_;
  FinishedItems finished_;  ///< and not reported yet
  bool reporting_ = false;  ///< a thread reports all that is ready
};

PoolEnd Pool::run() {
  std::unique_lock lock(mutex_);
  try {
    for (std::size_t i = 0; i < options_.threads; ++i) start_worker();
  } catch (...) {
    fail(std::current_exception());  // for those that run use what ours lives in
  }
  for (bool all_ended = false; !all_ended;) {  // and once more behind the last
    all_ended = ended_.wait_for(lock, kTick, [&] { return live_ == 0; });
    try {
      if (options_.timeout > 0) give_up_overdue();
      // While workers finish items, others are there to report them, and only this thread ticks.
      report_ready(lock, all_ended ? Clock::time_point::max() : Clock::now() + kTick);
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

void Pool::tick() {
  const std::lock_guard alone(report_mutex_);
  calls_.tick();
}

void Pool::start_worker() {
  const SignalsBlocked blocked;
  Worker& worker = workers_.emplace_back();
  try {
    worker.thread = std::thread([self = shared_from_this(), &worker] { self->work(worker); });
  } catch (const std::system_error&) {  // no more threads: those that there are do the work
    workers_.pop_back();
    if (live_ == 0)
      throw Error(ErrorKind::busy, "expected to start a thread, found no room for one");
    return;
  } catch (...) {
    workers_.pop_back();
    throw;
  }
  ++live_;
}

void Pool::work(Worker& self) {
  try {
    calls_.begin();
    std::string room;
    while (const std::shared_ptr<Task> task = take(self)) {
      const Claim claim = task->claim_of_worker();
      Outcome outcome = calls_.work(task->item, claim, std::move(room));
      outcome.seconds = task->seconds();
      if (!claim.take()) {
        // Where the clock was first, it is reported, and another worker is in this one's place.
        if (!task->claim(Task::Owner::worker)) break;
        if (outcome.status != Status::skipped) outcome = overdue(*task);
      }
      std::unique_lock lock = short_lock(mutex_);
      finish(task->place, std::move(outcome));
      room = finished_.spare_text();
      if (!may_wait()) report_ready(lock);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail(std::current_exception());
  }
  end_worker(self);
}

void Pool::end_worker(Worker& self) {
  const std::lock_guard lock(mutex_);
  self.take(nullptr);
  if (self.abandoned)
    --overdue_;
  else
    --live_;
  ended_.notify_all();
}

std::shared_ptr<Task> Pool::take(Worker& self) {
  const std::unique_lock source_lock = short_lock(source_mutex_);
  if (is_full_) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return stop_ || !is_full_; });
  }
  if (stop_) return nullptr;
  std::optional<Item> item = source_.next();
  if (!item || stop_) return nullptr;
  const auto task = std::make_shared<Task>();
  task->item = std::move(*item);
  task->place = started_++;
  task->limit = options_.timeout;
  self.take(task);
  return task;
}

void Pool::finish(std::size_t place, Outcome outcome) {
  if (outcome.status == Status::failed && options_.fail_fast) {
    stop_ = true;
    room_.notify_all();
  }
  finished_.add(place, std::move(outcome));
  look_for_room();
}

void Pool::look_for_room() {
  const std::size_t bytes = finished_.bytes();  // those being reported among them
  is_full_ = finished_.size() >= kMostWaiting || (bytes > 0 && bytes >= options_.most_waiting);
}

/// Texts are written many at once while more items are at hand, or the next tick writes them.
bool Pool::may_wait() const {
  return options_.in_order && source_.has_more() && !stop_ &&
         finished_.bytes() < std::min(kWorthWriting, options_.most_waiting) &&
         finished_.size() < kMostWaiting / 2;
}

/// Reports what is ready, until nothing is or it is late, or leaves that to the thread that is at
/// it. So no worker waits for another's writing, and what finishes meanwhile is written in one go.
void Pool::report_ready(std::unique_lock<std::mutex>& lock, Clock::time_point late) {
  if (reporting_) return;
  do {
    std::vector<Outcome> ready = finished_.take();
    if (ready.empty()) return;
    reporting_ = true;  // and remains so where a report throws: that was the last one
    lock.unlock();
    {
      const std::lock_guard alone(report_mutex_);
      calls_.report(ready);
    }
    lock.lock();
    reporting_ = false;
    finished_.forget(ready);
    look_for_room();
    room_.notify_all();
  } while (Clock::now() < late);
}

void Pool::fail(std::exception_ptr fault) {
  if (!fault_) fault_ = std::move(fault);
  stop_ = true;
  room_.notify_all();
}

void Pool::give_up_overdue() {
  for (Worker& worker : workers_) {
    const std::shared_ptr<Task> task = worker.task();
    if (worker.abandoned || task == nullptr) continue;
    if (!task->is_late() || !task->claim(Task::Owner::clock)) continue;
    worker.abandoned = true;
    --live_;
    ++overdue_;
    finish(task->place, overdue(*task));
    if (!stop_) start_worker();
  }
}

}  // namespace

PoolEnd run_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                 std::atomic<bool>& stop) {
  return std::make_shared<Pool>(source, options, calls, stop)->run();
}

}  // namespace attn
