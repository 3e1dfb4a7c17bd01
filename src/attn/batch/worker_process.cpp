#include "attn/batch/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "attn/base/error.h"
#include "attn/batch/signal_blocker.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

constinit std::array<std::atomic<pid_t>, 1024> worker_processes = {};  // for signal handlers

void note_process(pid_t before, pid_t now) {
  for (std::atomic<pid_t>& entry : worker_processes)
    if (pid_t expected = before; entry.compare_exchange_strong(expected, now)) return;
}

/// Waits until the process has ended; false if it is still running after a second.
bool wait_briefly(pid_t process) {
  constexpr timespec kMillisecond{0, 1000000};
  for (int waited = 0; waited < 1000; ++waited) {
    if (waitpid(process, nullptr, WNOHANG) != 0) return true;
    nanosleep(&kMillisecond, nullptr);
  }
  return false;
}

/// Makes Linux's OOM killer prefer this process to the main process.
void prefer_as_victim() {
  const Descriptor file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kScore = "500";
  if (file.is_open() && write(file.get(), kScore.data(), kScore.size()) < 0) return;
}

/// Signals sent to all processes of a terminal or service are for the main process, which ends its
/// workers.
void leave_signals_to_main_process() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1}) signal(number, SIG_IGN);
  signal(SIGXCPU, SIG_DFL);
}

/// The side of the worker process.
class WorkerLoop {
 public:
  WorkerLoop(const WorkerSetup& setup, Channel& channel, int requests, int bell)
      : setup_(setup), channel_(channel), requests_(requests), bell_(bell) {}

  /// Returns when the main process wants this process to end.
  void run() {
    setup_.memory->set_lender([this](std::size_t bytes, bool wait) { return ask({bytes, wait}); });
    setup_.calls->begin();
    bool is_withdrawn = false;
    while (const std::optional<WorkerRequest> request = next()) {
      if (request->kind == WorkerRequest::Kind::withdrawn) is_withdrawn = false;
      if (request->kind != WorkerRequest::Kind::item || is_withdrawn) continue;
      const auto& [sequence, item] = request->assignment;
      channel_.job.begin(sequence);
      Outcome outcome = run_item(sequence, item);
      append_outcome(reply_, sequence, outcome);
      put_reply();
      text_buffer_ = std::move(outcome.text);
      empty(text_buffer_);
      is_withdrawn = channel_.job.end();
      if (outcome.out_of_memory) return;  // a new process starts with all its memory
      // Early enough for new items to arrive before the others are done.
      if (waiting_.size() == most_waiting_ / 2 || channel_.replies.is_half_full()) ring();
    }
  }

 private:
  Outcome run_item(std::size_t sequence, const Item& item) {
    const double limit = setup_.timeout;
    const auto seconds = [&] { return channel_.job.seconds(sequence); };
    bool is_acquired = false;
    const CompletionToken token{[&] {
                                  const bool is_late = limit > 0 && seconds() >= limit;
                                  is_acquired = is_acquired || (!is_late && channel_.job.acquire());
                                  return is_acquired;
                                },
                                [] { return false; }};
    Outcome outcome = setup_.calls->work(item, token, std::move(text_buffer_));
    outcome.seconds = seconds();
    const bool in_time = token.acquire() || outcome.status == Status::skipped;
    return in_time ? outcome : overdue_outcome(item, limit, outcome.seconds);
  }

  /// The next request; nullopt if there will be none.
  std::optional<WorkerRequest> next() {
    while (waiting_.empty())
      if (!receive()) return std::nullopt;
    WorkerRequest request = std::move(waiting_.front());
    waiting_.pop_front();
    return request;
  }

  /// Waits for requests; false if there will be none.
  bool receive() {
    std::array<char, 262144> bytes;
    ssize_t count = 0;
    while ((count = read(requests_, bytes.data(), bytes.size())) < 0) {
      if (errno != EAGAIN && errno != EINTR) return false;
      ring();  // only now: otherwise there is work
      wait_for(requests_, POLLIN);
    }
    if (count == 0) return false;
    received_.append(bytes.data(), static_cast<std::size_t>(count));
    std::string_view rest = received_;
    while (std::optional<WorkerRequest> request = take_request(rest))
      waiting_.push_back(std::move(*request));
    received_.erase(0, received_.size() - rest.size());
    most_waiting_ = waiting_.size();
    return true;
  }

  /// Waits for the answer, which may come after further items.
  bool ask(const AskForMemory& question) {
    append_question(reply_, question);
    put_reply();
    ring();
    for (std::size_t at = 0;; ++at) {
      while (at >= waiting_.size())
        if (!receive()) _exit(0);
      if (waiting_[at].kind != WorkerRequest::Kind::memory) continue;
      const bool is_granted = waiting_[at].is_granted;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
      return is_granted;
    }
  }

  void put_reply() {
    constexpr timespec kPause{0, 50000};
    std::string_view rest = reply_;
    for (;;) {
      rest.remove_prefix(channel_.replies.put(rest));
      if (rest.empty()) break;
      ring();
      nanosleep(&kPause, nullptr);
    }
    empty(reply_);
  }

  /// Empties a text that will be filled again. A large buffer is freed.
  static void empty(std::string& text) {
    constexpr std::size_t kLarge = 65536;
    if (text.capacity() > kLarge) text = std::string();
    text.clear();
  }

  /// Wakes the main process if it sleeps.
  void ring() {
    if (!channel_.is_awaited.exchange(false)) return;
    // If it fails, the main process looks at the replies at its next tick.
    if (write(bell_, "", 1) < 0) return;
  }

  const WorkerSetup& setup_;
  Channel& channel_;
  const int requests_, bell_;
  std::deque<WorkerRequest> waiting_;
  std::size_t most_waiting_ = 0;  ///< after the last receive()
  std::string received_, reply_, text_buffer_;
};

[[noreturn]] void run_worker(const WorkerSetup& setup, Channel& channel, int requests, int bell,
                             pid_t main_process) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != main_process) _exit(0);
  prefer_as_victim();
  try {
    WorkerLoop(setup, channel, requests, bell).run();
  } catch (...) {  // the main process reports the exit code
    _exit(static_cast<int>(ErrorKind::internal));
  }
  _exit(0);
}

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw system_error(ErrorKind::busy, "worker process", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

struct FreeChannel {
  void operator()(Channel* channel) const { free_channel(channel); }
};

}  // namespace

WorkerProcess::WorkerProcess(const WorkerSetup& setup,
                             const std::vector<std::unique_ptr<WorkerProcess>>& others) {
  std::unique_ptr<Channel, FreeChannel> channel(make_channel());
  Pipe requests = make_pipe(), bell = make_pipe();
  for (const Descriptor* end : {&requests.read, &requests.write, &bell.read})
    fcntl(end->get(), F_SETFL, O_NONBLOCK);
  const pid_t main_process = getpid();
  {
    const SignalBlocker blocker;
    process_ = fork();
    if (process_ == 0) {
      call_before_removal(nullptr);
      leave_signals_to_main_process();
      requests.write.close();
      bell.read.close();
      for (const auto& other : others) {
        if (other == nullptr) continue;
        other->requests_.close();
        other->bell_.close();
      }
    } else if (process_ > 0) {
      note_process(0, process_);
    }
  }
  if (process_ == 0)
    run_worker(setup, *channel, requests.read.get(), bell.write.get(), main_process);
  if (process_ < 0) throw system_error(ErrorKind::busy, "worker process", errno);
  requests_ = std::move(requests.write);
  bell_ = std::move(bell.read);
  channel_ = channel.release();
}

WorkerProcess::~WorkerProcess() {
  kill();
  free_channel(channel_);
}

void WorkerProcess::assign(Assignment assignment) {
  append_item(to_send_, assignment.sequence, assignment.item);
  unfinished.push_back(std::move(assignment));
}

void WorkerProcess::send() {
  std::size_t sent = 0;
  while (sent < to_send_.size()) {
    const ssize_t count = write(requests_.get(), to_send_.data() + sent, to_send_.size() - sent);
    if (count > 0)
      sent += static_cast<std::size_t>(count);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      sent = to_send_.size();  // the worker has ended, which its bell reports
  }
  to_send_.erase(0, sent);
}

void WorkerProcess::receive(const std::function<std::string()>& spare_text,
                            const std::function<void(WorkerReply)>& handle) {
  if (!channel_->replies.take(received_)) throw BadMessage();
  std::string_view rest = received_;
  while (std::optional<WorkerReply> reply = take_reply(rest, spare_text()))
    handle(std::move(*reply));
  received_.erase(0, received_.size() - rest.size());
}

std::deque<Assignment> WorkerProcess::withdraw() {
  std::deque<Assignment> withdrawn;
  if (unfinished.size() < 2 || !channel_->job.withdraw_others(unfinished.front().sequence))
    return withdrawn;
  append_withdrawal(to_send_);
  for (auto item = unfinished.begin() + 1; item != unfinished.end(); ++item)
    withdrawn.push_back(std::move(*item));
  unfinished.resize(1);
  return withdrawn;
}

bool WorkerProcess::expire() {
  has_expired_ = channel_->job.expire(unfinished.front().sequence);
  return has_expired_;
}

double WorkerProcess::busy_seconds() const {
  return unfinished.empty() ? 0 : channel_->job.seconds(unfinished.front().sequence);
}

bool WorkerProcess::is_running() const {
  return !unfinished.empty() && channel_->job.sequence() == unfinished.front().sequence;
}

int WorkerProcess::kill() {
  if (process_ <= 0) return 0;
  ::kill(process_, SIGKILL);
  return wait();
}

int WorkerProcess::wait() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
  note_process(process_, 0);
  process_ = -1;
  return status;
}

void WorkerProcess::clear_bell() {
  std::array<char, 64> bytes;
  while (read(bell_.get(), bytes.data(), bytes.size()) > 0) continue;
}

void kill_worker_processes() {
  for (const std::atomic<pid_t>& process : worker_processes)
    if (process > 0) ::kill(process, SIGKILL);
  for (const std::atomic<pid_t>& process : worker_processes)
    if (process > 0) wait_briefly(process);
}

}  // namespace attn
