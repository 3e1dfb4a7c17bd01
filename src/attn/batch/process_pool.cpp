#include "attn/batch/process_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/batch/scheduler.h"
#include "attn/batch/worker_process.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

using std::chrono::milliseconds;

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

class ProcessPool final : public Transport {
 public:
  ProcessPool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
              MemoryBudget& memory, std::atomic<bool>& stop)
      : source_(source),
        options_(options),
        calls_(calls),
        stop_(stop),
        setup_{&calls_, options.timeout, &memory},
        lender_(memory, options.threads) {}

  PoolEnd run();

 private:
  using Worker = std::unique_ptr<WorkerProcess>;

  std::size_t workers() const override { return workers_.size(); }
  std::size_t items_of(std::size_t worker) const override {
    return workers_[worker] ? workers_[worker]->unfinished.size() : 0;
  }
  bool can_take_another(std::size_t worker) const override;
  void assign(std::size_t worker, Assignment assignment) override {
    workers_[worker]->assign(std::move(assignment));
  }
  void share_waiting_items(Scheduler& scheduler) override;
  void send() override;
  void collect(Scheduler& scheduler, Clock::time_point end) override;

  void start_workers();
  void start_worker(Worker& place);
  void collect(Scheduler& scheduler, Worker& worker, bool has_ended);
  void receive(Scheduler& scheduler, WorkerProcess& worker);
  void bury(Scheduler& scheduler, Worker& worker, const std::string& reason = "");
  void end_overdue(Scheduler& scheduler);

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls calls_;
  std::atomic<bool>& stop_;
  const WorkerSetup setup_;
  MemoryLender lender_;
  std::vector<Worker> workers_;  ///< an element without a process could not be replaced
  int idle_ends_ = 0;
};

PoolEnd ProcessPool::run() {
  std::exception_ptr fault;
  call_before_removal(kill_worker_processes);
  try {
    share_temp_files();
    start_workers();
    Scheduler(source_, options_, calls_, stop_, true).run(*this);
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

bool ProcessPool::can_take_another(std::size_t number) const {
  constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;
  if (!workers_[number]) return false;
  const WorkerProcess& worker = *workers_[number];
  const std::size_t count = worker.unfinished.size();
  if (count == 0) return true;
  if (options_.fail_fast || !worker.mean.is_known() || worker.unsent() > kMaxUnsent) return false;
  const bool has_space =
      count < kMaxItems && static_cast<double>(count) < 1 + worker.mean.items_in(kWorkAhead);
  return has_space && worker.busy_seconds() < kSlow;
}

/// If a worker has nothing to do, takes back items that wait behind a slow one.
void ProcessPool::share_waiting_items(Scheduler& scheduler) {
  const auto is_idle = [](const Worker& worker) { return worker && worker->unfinished.empty(); };
  if (std::none_of(workers_.begin(), workers_.end(), is_idle)) return;
  for (const Worker& worker : workers_)
    if (worker && worker->unfinished.size() >= 2 && worker->busy_seconds() >= kSlow)
      scheduler.take_back(worker->withdraw());
}

void ProcessPool::send() {
  for (const Worker& worker : workers_)
    if (worker) worker->send();
}

/// Sleeps until there is something to do, and does it.
void ProcessPool::collect(Scheduler& scheduler, Clock::time_point end) {
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
  if (const int source = scheduler.awaited_source(*this); source >= 0)
    ready.push_back({source, POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  const bool is_due = has_replies || left <= 0;
  poll(ready.data(), ready.size(), is_due ? 0 : static_cast<int>(left));
  std::size_t bell = 0;
  for (Worker& worker : workers_) {
    if (!worker) continue;
    worker->set_awaited(false);
    const short events = bell < bells ? ready[bell++].revents : short{0};
    if ((events & POLLIN) != 0) worker->clear_bell();
    collect(scheduler, worker, (events & POLLHUP) != 0);
  }
  end_overdue(scheduler);
}

void ProcessPool::collect(Scheduler& scheduler, Worker& worker, bool has_ended) {
  try {
    receive(scheduler, *worker);
    if (has_ended) bury(scheduler, worker);
  } catch (const BadMessage&) {
    bury(scheduler, worker, "sent an invalid reply");
  }
}

void ProcessPool::receive(Scheduler& scheduler, WorkerProcess& worker) {
  worker.receive([&] { return scheduler.spare_text(); },
                 [&](WorkerReply reply) {
                   if (reply.kind == WorkerReply::Kind::question)
                     return lender_.ask(worker, reply.ask);
                   if (reply.kind != WorkerReply::Kind::outcome || worker.unfinished.empty() ||
                       worker.unfinished.front().sequence != reply.sequence)
                     throw BadMessage();
                   Item item = std::move(worker.unfinished.front().item);
                   worker.mean.add(reply.outcome.seconds);
                   worker.unfinished.pop_front();
                   ++worker.finished;
                   lender_.give_back(worker);
                   scheduler.finish(reply.sequence, std::move(item), std::move(reply.outcome));
                 });
}

/// Ends a worker, which may have ended, and replaces it. The item that it ran has failed; the
/// others are run again. `reason` replaces the status in the error.
void ProcessPool::bury(Scheduler& scheduler, Worker& worker, const std::string& reason) {
  const double seconds = worker->busy_seconds();
  const pid_t process = worker->process();
  const int status = worker->kill();
  try {
    receive(scheduler, *worker);
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
    scheduler.finish(sequence, item,
                     worker->has_expired() ? overdue_outcome(item, options_.timeout, seconds)
                                           : lost_outcome(item, status, reason, seconds));
  }
  scheduler.take_back(std::move(worker->unfinished));
  worker.reset();
  start_worker(worker);
}

void ProcessPool::end_overdue(Scheduler& scheduler) {
  if (options_.timeout <= 0) return;
  for (Worker& worker : workers_)
    if (worker && worker->busy_seconds() >= options_.timeout && worker->expire())
      bury(scheduler, worker);
}

}  // namespace

PoolEnd run_process_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                         MemoryBudget& memory, std::atomic<bool>& stop) {
  return ProcessPool(source, options, calls, memory, stop).run();
}

}  // namespace attn
