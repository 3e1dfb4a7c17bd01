#include "attn/batch/process_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/manifest.h"
#include "attn/batch/worker_process.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
constexpr double kWorkAhead = 4e-3;     // seconds of work that a worker has
constexpr double kSlow = 5e-3;          // seconds, after which others take its waiting items
constexpr std::size_t kMaxItems = 512;  // that a worker has
constexpr int kMaxIdleDeaths = 5;       // consecutive deaths of workers that ran no item

/// "SIGSEGV"
std::string signal_name(int number) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGILL, "SIGILL"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"}, {SIGSEGV, "SIGSEGV"},
      {SIGSYS, "SIGSYS"},   {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}};
  for (const auto& [known, name] : kNames)
    if (known == number) return name;
  return "signal " + std::to_string(number);
}

/// The outcome of an item whose worker ended with this status of waitpid(), or for this reason.
Outcome lost_outcome(const Item& item, int status, const std::string& reason, double seconds) {
  Outcome outcome{.number = item.number, .name = item.name, .status = Status::failed};
  outcome.seconds = seconds;
  std::string end = reason;
  if (!reason.empty()) {
    outcome.code = static_cast<int>(ErrorKind::internal);
  } else if (WIFSIGNALED(status)) {
    end = "was ended by " + signal_name(WTERMSIG(status));
    if (WTERMSIG(status) == SIGKILL) end += ", which the kernel sends when memory is short";
    outcome.code = 128 + WTERMSIG(status);
  } else {
    outcome.code = WEXITSTATUS(status);
    end = "ended with exit code " + std::to_string(outcome.code);
    if (outcome.code == 0) outcome.code = static_cast<int>(ErrorKind::internal);
  }
  outcome.error = {printable(item.name) + ": its worker process " + end};
  return outcome;
}

/// Lends memory to workers. Each already has MemoryBudget::minimum().
class MemoryLender {
 public:
  MemoryLender(const MemoryBudget& budget, std::size_t workers)
      : minimum_(budget.minimum()),
        all_(budget.limit() - std::min(budget.limit() / 2, workers * minimum_)),
        free_(all_) {}

  /// Answers now, or when enough memory has been given back.
  void ask(WorkerProcess& worker, const AskForMemory& question) {
    if (question.wait) give_back(worker);
    const std::size_t wanted = std::min(question.bytes - std::min(question.bytes, minimum_), all_);
    const std::size_t more = wanted - std::min(wanted, worker.lent);
    if (waiting_.empty() && more <= free_) {
      lend(worker, more);
    } else if (question.wait) {
      waiting_.push_back({&worker, more});
    } else {
      worker.answer(false);
    }
  }

  /// Takes all that the worker has borrowed, and serves others that wait.
  void give_back(WorkerProcess& worker) {
    free_ += std::exchange(worker.lent, 0);
    std::erase_if(waiting_, [&](const Waiting& entry) { return entry.worker == &worker; });
    while (!waiting_.empty() && waiting_.front().bytes <= free_) {
      const Waiting first = waiting_.front();
      waiting_.pop_front();
      lend(*first.worker, first.bytes);
    }
  }

 private:
  struct Waiting {
    WorkerProcess* worker;
    std::size_t bytes;
  };

  void lend(WorkerProcess& worker, std::size_t bytes) {
    free_ -= bytes;
    worker.lent += bytes;
    worker.answer(true);
  }

  const std::size_t minimum_, all_;
  std::size_t free_;
  std::deque<Waiting> waiting_;
};

class ProcessPool {
 public:
  ProcessPool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
              MemoryBudget& memory, std::atomic<bool>& stop)
      : source_(source),
        options_(options),
        calls_(calls),
        stop_(stop),
        setup_{&calls_, options.timeout, &memory},
        lender_(memory, options.threads),
        finished_(options.in_order) {}

  PoolEnd run();

 private:
  using Worker = std::unique_ptr<WorkerProcess>;

  void start_workers();
  void start_worker(Worker& place);
  bool feed();
  std::optional<Assignment> next_item();
  bool can_take_item() const;
  WorkerProcess* freest_worker();
  bool can_take_another(const WorkerProcess& worker) const;
  void share_waiting_items();
  void wait();
  void collect(Worker& worker, bool has_ended);
  void receive(WorkerProcess& worker);
  void bury(Worker& worker, const std::string& reason = "");
  void end_overdue();
  void finish(std::size_t sequence, Outcome outcome);
  void report();

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls calls_;
  std::atomic<bool>& stop_;
  const WorkerSetup setup_;
  MemoryLender lender_;
  std::vector<Worker> workers_;      ///< an element without a process could not be replaced
  std::deque<Assignment> returned_;  ///< items taken from workers, in order
  std::size_t started_ = 0;          ///< items taken from the source
  bool source_ended_ = false;
  int idle_ends_ = 0;
  FinishedItems finished_;
  std::chrono::steady_clock::time_point next_tick_ = std::chrono::steady_clock::now();
};

PoolEnd ProcessPool::run() {
  std::exception_ptr fault;
  call_before_removal(kill_worker_processes);
  try {
    share_temp_files();
    start_workers();
    while (feed()) {
      wait();
      end_overdue();
      report();
    }
    report();
  } catch (...) {
    fault = std::current_exception();
    stop_ = true;
  }
  for (const Worker& worker : workers_)
    if (worker) {
      const pid_t process = worker->process();
      worker->kill();  // idle, unless there was a fault
      remove_files_of_process(process);
    }
  call_before_removal(nullptr);
  remove_folders_of_ended_processes();
  return {fault, 0};
}

void ProcessPool::start_workers() {
  const std::size_t items = source_.count().value_or(options_.threads);
  const std::size_t count = std::max<std::size_t>(1, std::min(options_.threads, items));
  rlimit files{};  // two descriptors for each worker
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, files.rlim_cur + 2 * count);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  workers_.resize(count);
  for (Worker& worker : workers_) start_worker(worker);
}

/// If no process can be started, the others go on. Errors: busy, if there are none.
void ProcessPool::start_worker(Worker& place) {
  try {
    place = std::make_unique<WorkerProcess>(setup_, workers_);
  } catch (const Error&) {
    const auto exists = [](const Worker& worker) { return worker != nullptr; };
    if (std::none_of(workers_.begin(), workers_.end(), exists)) throw;
  }
}

/// Gives items to workers. Returns false when all are done.
bool ProcessPool::feed() {
  bool is_waiting = false;
  for (WorkerProcess* worker = nullptr; (worker = freest_worker()) != nullptr;) {
    std::optional<Assignment> assignment = next_item();
    if (!assignment) {
      share_waiting_items();
      if (returned_.empty()) break;
      continue;
    }
    worker->assign(std::move(*assignment));
  }
  for (const Worker& worker : workers_) {
    if (!worker) continue;
    worker->send();
    is_waiting = is_waiting || !worker->unfinished.empty();
  }
  return is_waiting || !returned_.empty() || !(source_ended_ || stop_);
}

std::optional<Assignment> ProcessPool::next_item() {
  if (!returned_.empty()) {
    Assignment first = std::move(returned_.front());
    returned_.pop_front();
    return first;
  }
  if (!can_take_item() || !source_.is_ready()) return std::nullopt;
  std::optional<Item> item = source_.next();
  if (!item) {
    source_ended_ = true;
    return std::nullopt;
  }
  return Assignment{started_++, std::move(*item)};
}

/// Whether more outcomes may wait to be reported, and the source may have more items.
bool ProcessPool::can_take_item() const {
  const std::size_t bytes = finished_.bytes();
  const bool is_full =
      finished_.size() >= kMaxWaitingItems || (bytes > 0 && bytes >= options_.max_waiting);
  return !stop_ && !source_ended_ && !is_full;
}

/// The worker with the fewest items among those that can take another; nullptr if there is none.
WorkerProcess* ProcessPool::freest_worker() {
  WorkerProcess* best = nullptr;
  for (const Worker& worker : workers_)
    if (worker && (best == nullptr || worker->unfinished.size() < best->unfinished.size()) &&
        can_take_another(*worker))
      best = worker.get();
  return best;
}

bool ProcessPool::can_take_another(const WorkerProcess& worker) const {
  constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;
  const std::size_t count = worker.unfinished.size();
  if (count == 0) return true;
  if (options_.fail_fast || !worker.mean.is_known() || worker.unsent() > kMaxUnsent) return false;
  const bool has_space =
      count < kMaxItems && static_cast<double>(count) < 1 + worker.mean.items_in(kWorkAhead);
  return has_space && worker.busy_seconds() < kSlow;
}

/// If a worker has nothing to do, takes back items that wait behind a slow one.
void ProcessPool::share_waiting_items() {
  const auto is_idle = [](const Worker& worker) { return worker && worker->unfinished.empty(); };
  if (std::none_of(workers_.begin(), workers_.end(), is_idle)) return;
  for (const Worker& worker : workers_) {
    if (!worker || worker->unfinished.size() < 2 || worker->busy_seconds() < kSlow) continue;
    for (Assignment& assignment : worker->withdraw()) returned_.push_back(std::move(assignment));
  }
}

/// Sleeps until there is something to do, at most until the next tick, and does it.
void ProcessPool::wait() {
  const auto now = std::chrono::steady_clock::now();
  bool has_replies = false;
  std::vector<pollfd> ready;
  for (const Worker& worker : workers_) {
    if (!worker) continue;
    worker->set_awaited(true);
    has_replies = has_replies || worker->has_replies();
    ready.push_back({worker->bell(), POLLIN, 0});
  }
  const std::size_t bells = ready.size();
  for (const Worker& worker : workers_)
    if (worker && worker->unsent() > 0) ready.push_back({worker->requests(), POLLOUT, 0});
  if (source_.descriptor() >= 0 && returned_.empty() && can_take_item() &&
      freest_worker() != nullptr)
    ready.push_back({source_.descriptor(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(next_tick_ - now).count();
  const bool is_due = has_replies || left <= 0;
  poll(ready.data(), ready.size(), is_due ? 0 : static_cast<int>(left));
  std::size_t bell = 0;
  for (Worker& worker : workers_) {
    if (!worker) continue;
    worker->set_awaited(false);
    const short events = bell < bells ? ready[bell++].revents : short{0};
    if ((events & POLLIN) != 0) worker->clear_bell();
    collect(worker, (events & POLLHUP) != 0);
  }
  if (std::chrono::steady_clock::now() < next_tick_) return;
  next_tick_ = std::chrono::steady_clock::now() + kTick;
  report();  // a tick may end the batch
  calls_.tick();
}

void ProcessPool::collect(Worker& worker, bool has_ended) {
  try {
    receive(*worker);
    if (has_ended) bury(worker);
  } catch (const BadMessage&) {
    bury(worker, "sent an invalid reply");
  }
}

void ProcessPool::receive(WorkerProcess& worker) {
  worker.receive([&] { return finished_.spare_text(); },
                 [&](WorkerReply reply) {
                   if (reply.kind == WorkerReply::Kind::question)
                     return lender_.ask(worker, reply.ask);
                   if (reply.kind != WorkerReply::Kind::outcome || worker.unfinished.empty() ||
                       worker.unfinished.front().sequence != reply.sequence)
                     throw BadMessage();
                   const Item& item = worker.unfinished.front().item;
                   reply.outcome.number = item.number;
                   reply.outcome.name = item.name;
                   worker.mean.add(reply.outcome.seconds);
                   worker.unfinished.pop_front();
                   ++worker.finished;
                   lender_.give_back(worker);
                   finish(reply.sequence, std::move(reply.outcome));
                 });
}

/// Ends a worker, which may have ended, and replaces it. The item that it ran has failed; the
/// others are run again. `reason` replaces the status in the error.
void ProcessPool::bury(Worker& worker, const std::string& reason) {
  const double seconds = worker->busy_seconds();
  const pid_t process = worker->process();
  const int status = worker->kill();
  try {
    receive(*worker);
  } catch (const BadMessage&) {  // what it sent last is lost
  }
  remove_files_of_process(process);
  lender_.give_back(*worker);
  const bool ran_item = worker->is_running();
  idle_ends_ = ran_item || worker->finished > 0 ? 0 : idle_ends_ + 1;
  if (idle_ends_ > kMaxIdleDeaths)
    throw Error(ErrorKind::internal, "worker processes end before they run a job");
  if (ran_item) {
    const auto [sequence, item] = std::move(worker->unfinished.front());
    worker->unfinished.pop_front();
    finish(sequence, worker->has_expired() ? overdue_outcome(item, options_.timeout, seconds)
                                           : lost_outcome(item, status, reason, seconds));
  }
  returned_.insert(returned_.begin(), std::make_move_iterator(worker->unfinished.begin()),
                   std::make_move_iterator(worker->unfinished.end()));
  worker.reset();
  start_worker(worker);
}

void ProcessPool::end_overdue() {
  if (options_.timeout <= 0) return;
  for (Worker& worker : workers_)
    if (worker && worker->busy_seconds() >= options_.timeout && worker->expire()) bury(worker);
}

void ProcessPool::finish(std::size_t sequence, Outcome outcome) {
  if (outcome.status == Status::failed && options_.fail_fast) stop_ = true;
  finished_.add(sequence, std::move(outcome));
}

void ProcessPool::report() {
  std::vector<Outcome> ready = finished_.take();
  if (ready.empty()) return;
  calls_.report(ready);
  finished_.forget(ready);
}

}  // namespace

PoolEnd run_process_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                         MemoryBudget& memory, std::atomic<bool>& stop) {
  return ProcessPool(source, options, calls, memory, stop).run();
}

}  // namespace attn
