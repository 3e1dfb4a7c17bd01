#include "attn-mpi/team_pool.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/batch/message.h"
#include "attn/batch/recent_mean.h"
#include "attn/batch/scheduler.h"
#include "attn/batch/signal_blocker.h"

namespace attn {
namespace {

/// Waits longer each time nothing has arrived, so that the processor is free for others.
class PollPause {
 public:
  void wait() {
    const timespec time{0, nanoseconds_};
    nanosleep(&time, nullptr);
    nanoseconds_ = std::min(2 * nanoseconds_, kLongest);
  }
  void reset() { nanoseconds_ = kShortest; }

 private:
  static constexpr long kShortest = 1000, kLongest = 1000000;
  long nanoseconds_ = kShortest;
};

constexpr std::size_t kLargeReply = std::size_t{1} << 16;  // bytes; a worker waits until it is sent

/// The items that member 0 has sent to this member.
class ReceivedItems final : public ItemSource {
 public:
  ReceivedItems(Team& team, const std::atomic<bool>& stop) : team_(team), stop_(stop) {}

  std::optional<Item> next() override {
    PollPause pause;
    for (;; pause.wait()) {
      const std::lock_guard lock(mutex_);
      receive();
      if (!waiting_.empty()) {
        Assignment first = std::move(waiting_.front());
        waiting_.pop_front();
        started_[first.item.number] = first.sequence;
        return std::move(first.item);
      }
      if (has_ended_ || stop_) return std::nullopt;
    }
  }
  std::optional<std::size_t> count() const override { return std::nullopt; }

  void announce(std::size_t workers) {
    std::string bytes;
    append_workers(bytes, workers);
    team_.post(0, Mailbox::replies, std::move(bytes));
  }

  /// Returns withdrawn items, even if all workers are busy.
  void look_for_withdrawal() {
    const std::lock_guard lock(mutex_);
    receive();
  }

  void send(std::span<const Outcome> outcomes) {
    std::string bytes;
    {
      const std::lock_guard lock(mutex_);
      for (const Outcome& outcome : outcomes) {
        const auto started = started_.find(outcome.number);
        append_outcome(bytes, started->second, outcome);
        started_.erase(started);
      }
    }
    const bool is_large = bytes.size() > kLargeReply;
    team_.post(0, Mailbox::replies, std::move(bytes));
    if (team_.rank() == 0) return;  // TeamPool moves it
    for (PollPause pause; team_.is_sending() && is_large;) pause.wait();
  }

  /// Waits until all outcomes are sent.
  void finish_sending() {
    for (PollPause pause; team_.is_sending();) pause.wait();
  }

 private:
  void receive() {
    while (const std::optional<Parcel> parcel = team_.take(Mailbox::requests)) {
      received_ += parcel->bytes;
      std::string_view rest = received_;
      while (std::optional<WorkerRequest> request = take_request(rest)) {
        if (request->kind == WorkerRequest::Kind::item)
          waiting_.push_back(std::move(request->assignment));
        if (request->kind == WorkerRequest::Kind::withdrawn) return_waiting_items();
        has_ended_ = has_ended_ || request->kind == WorkerRequest::Kind::end;
      }
      received_.erase(0, received_.size() - rest.size());
    }
  }

  void return_waiting_items() {
    std::string bytes;
    for (const Assignment& assignment : waiting_) append_return(bytes, assignment.sequence);
    waiting_.clear();
    if (!bytes.empty()) team_.post(0, Mailbox::replies, std::move(bytes));
  }

  Team& team_;
  const std::atomic<bool>& stop_;
  std::mutex mutex_;  ///< guards the members below
  std::string received_;
  std::deque<Assignment> waiting_;
  std::unordered_map<std::size_t, std::size_t> started_;  ///< sequence by the item's number
  bool has_ended_ = false;
};

PoolEnd run_received_items(ReceivedItems& items, const PoolOptions& options, const PoolCalls& calls,
                           std::atomic<bool>& stop) {
  PoolCalls own{.begin = calls.begin, .work = calls.work, .report = {}, .tick = {}};
  own.report = [&](std::span<const Outcome> outcomes) { items.send(outcomes); };
  own.tick = [&] { items.look_for_withdrawal(); };
  PoolOptions pool = options;
  pool.in_order = pool.fail_fast = false;  // member 0 sees to both
  return run_pool(items, pool, own, stop);
}

/// A member as member 0 sees it.
struct TeamMember {
  std::size_t workers = 0;                      ///< 0 until it has told how many it has
  std::map<std::size_t, Item> unfinished = {};  ///< by sequence
  std::size_t line_bytes = 0;                   ///< of the lines of unfinished items
  RecentMean mean = {};                         ///< of finished items
  Transport::Clock::time_point last_reply = Transport::Clock::now();
  std::string to_send = {}, received = {};
};

constexpr double kTeamWorkAhead = 20e-3;                    // seconds of work of a member
constexpr auto kSlowReply = std::chrono::milliseconds(50);  // a member without replies is slow
constexpr std::size_t kMaxItemsOfMember = 4096;
constexpr std::size_t kMaxLinesOfMember = std::size_t{1} << 20;  // bytes

class TeamPool final : public Transport {
 public:
  TeamPool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls, Team& team,
           std::atomic<bool>& stop)
      : source_(source),
        options_(options),
        calls_(calls),
        team_(team),
        stop_(stop),
        own_items_(team, stop_own_),
        members_(team.size()) {
    members_[0].workers = options.threads;
  }

  PoolEnd run();

 private:
  std::size_t workers() const override { return members_.size(); }
  std::size_t items_of(std::size_t rank) const override { return members_[rank].unfinished.size(); }
  bool can_take_another(std::size_t rank) const override;
  void assign(std::size_t rank, Assignment assignment) override;
  void send() override;
  void collect(Scheduler& scheduler, Clock::time_point end) override;
  void tick() override;

  void start_own_member();
  bool have_all_announced() const {
    return std::all_of(members_.begin(), members_.end(),
                       [](const TeamMember& member) { return member.workers > 0; });
  }
  bool is_slow(const TeamMember& member) const {
    return Clock::now() - member.last_reply >= kSlowReply;
  }
  void handle(Scheduler& scheduler, TeamMember& member, WorkerReply reply,
              std::deque<Assignment>& returned);

  ItemSource& source_;
  const PoolOptions options_;
  const PoolCalls& calls_;
  Team& team_;
  std::atomic<bool>& stop_;
  std::atomic<bool> stop_own_ = false, has_own_ended_ = false;
  ReceivedItems own_items_;
  PoolEnd own_end_;
  std::thread own_member_;
  std::vector<TeamMember> members_;
  PollPause pause_;
};

PoolEnd TeamPool::run() {
  std::exception_ptr fault;
  try {
    start_own_member();
    Scheduler scheduler(source_, options_, calls_, stop_, false);
    scheduler.run(*this);
    while (!have_all_announced())  // no message may be left when MPI ends
      collect(scheduler, Clock::now());
    std::string end;
    append_end(end);
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      team_.post(rank, Mailbox::requests, end);
    for (PollPause sending; team_.is_sending();) sending.wait();
  } catch (...) {
    fault = std::current_exception();
    stop_ = stop_own_ = true;
  }
  if (own_member_.joinable()) own_member_.join();
  return {own_end_.fault ? own_end_.fault : fault, own_end_.overdue};
}

void TeamPool::start_own_member() {
  const SignalBlocker blocker;
  try {
    own_member_ = std::thread([this] {
      own_end_ = run_received_items(own_items_, options_, calls_, stop_own_);
      has_own_ended_ = true;
    });
  } catch (const std::system_error&) {
    throw Error(ErrorKind::busy, "no thread could be started");
  }
}

bool TeamPool::can_take_another(std::size_t rank) const {
  const TeamMember& member = members_[rank];
  const std::size_t count = member.unfinished.size();
  if (count < member.workers) return true;
  if (member.workers == 0) return false;
  if (options_.fail_fast || !member.mean.is_known() || is_slow(member)) return false;
  const double ahead = member.mean.items_in(kTeamWorkAhead);
  return count < kMaxItemsOfMember && member.line_bytes < kMaxLinesOfMember &&
         static_cast<double>(count) < static_cast<double>(member.workers) * (1 + ahead);
}

void TeamPool::assign(std::size_t rank, Assignment assignment) {
  TeamMember& member = members_[rank];
  if (member.unfinished.empty()) member.last_reply = Clock::now();
  append_item(member.to_send, assignment.sequence, assignment.item);
  member.line_bytes += assignment.item.line ? assignment.item.line->size() : 0;
  member.unfinished.emplace(assignment.sequence, std::move(assignment.item));
}

void TeamPool::send() {
  for (std::size_t rank = 0; rank < members_.size(); ++rank)
    if (std::string& bytes = members_[rank].to_send; !bytes.empty())
      team_.post(rank, Mailbox::requests, std::exchange(bytes, {}));
}

/// Handles what has arrived, or waits for less than a millisecond.
void TeamPool::collect(Scheduler& scheduler, Clock::time_point) {
  bool has_arrived = false;
  std::deque<Assignment> returned;
  while (const std::optional<Parcel> parcel = team_.take(Mailbox::replies)) {
    has_arrived = true;
    TeamMember& member = members_.at(parcel->from);
    member.last_reply = Clock::now();
    member.received += parcel->bytes;
    std::string_view rest = member.received;
    while (std::optional<WorkerReply> reply = take_reply(rest, scheduler.spare_text()))
      handle(scheduler, member, std::move(*reply), returned);
    member.received.erase(0, member.received.size() - rest.size());
  }
  if (!returned.empty()) scheduler.take_back(std::move(returned));
  team_.is_sending();  // moves large messages
  if (has_own_ended_) throw Error(ErrorKind::internal, "the workers of rank 0 have ended");
  if (has_arrived)
    pause_.reset();
  else
    pause_.wait();
}

void TeamPool::handle(Scheduler& scheduler, TeamMember& member, WorkerReply reply,
                      std::deque<Assignment>& returned) {
  if (reply.kind == WorkerReply::Kind::workers) {
    member.workers = reply.workers;
    return;
  }
  const auto entry = member.unfinished.find(reply.sequence);
  if (entry == member.unfinished.end()) throw BadMessage();
  Item item = std::move(entry->second);
  member.unfinished.erase(entry);
  member.line_bytes -= item.line ? item.line->size() : 0;
  if (reply.kind == WorkerReply::Kind::returned) {
    returned.push_back({reply.sequence, std::move(item)});
    return;
  }
  member.mean.add(reply.outcome.seconds);
  scheduler.finish(reply.sequence, std::move(item), std::move(reply.outcome));
}

/// If a member could run more items, takes back those that wait on slow ones.
void TeamPool::tick() {
  const auto is_free = [](const TeamMember& member) {
    return member.unfinished.size() < member.workers;
  };
  if (std::none_of(members_.begin(), members_.end(), is_free)) return;
  for (TeamMember& member : members_)
    if (member.unfinished.size() > member.workers && is_slow(member))
      append_withdrawal(member.to_send);
}

}  // namespace

PoolEnd run_team_pool(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                      Team& team, std::atomic<bool>& stop) {
  auto pool = std::make_unique<TeamPool>(source, options, calls, team, stop);
  const PoolEnd end = pool->run();
  if (end.overdue > 0) static_cast<void>(pool.release());  // their threads may use it
  return end;
}

PoolEnd run_items_of_team(const PoolOptions& options, const PoolCalls& calls, Team& team) {
  struct Run {
    explicit Run(Team& of) : items(of, stop) {}
    std::atomic<bool> stop = false;
    ReceivedItems items;
  };
  auto run = std::make_unique<Run>(team);
  run->items.announce(options.threads);
  const PoolEnd end = run_received_items(run->items, options, calls, run->stop);
  if (!end.fault) run->items.finish_sending();
  if (end.overdue > 0) static_cast<void>(run.release());  // their threads may use it
  return end;
}

}  // namespace attn
