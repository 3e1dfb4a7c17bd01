#include "attn/batch/scheduler.h"

#include <iterator>
#include <utility>
#include <vector>

namespace attn {

Scheduler::Scheduler(ItemSource& source, const PoolOptions& options, const PoolCalls& calls,
                     std::atomic<bool>& stop, bool reports_at_once)
    : source_(source),
      options_(options),
      calls_(calls),
      stop_(stop),
      reports_at_once_(reports_at_once),
      finished_(options.in_order, options.max_waiting) {}

void Scheduler::run(Transport& transport) {
  Transport::Clock::time_point next_tick = Transport::Clock::now();
  while (feed(transport)) {
    transport.collect(*this, next_tick);
    if (reports_at_once_ || finished_.is_half_full()) report();
    if (Transport::Clock::now() < next_tick) continue;
    next_tick = Transport::Clock::now() + kTickInterval;
    report();  // a tick may end the batch
    calls_.tick();
    transport.tick();
  }
  report();
}

/// Gives items to workers. Returns false when all are done.
bool Scheduler::feed(Transport& transport) {
  while (const std::optional<std::size_t> worker = freest_worker(transport)) {
    std::optional<Assignment> assignment = next_item();
    if (!assignment) {
      transport.share_waiting_items(*this);
      assignment = next_item();
    }
    if (!assignment) break;
    transport.assign(*worker, std::move(*assignment));
  }
  transport.send();
  bool is_waiting = false;
  for (std::size_t worker = 0; worker < transport.workers(); ++worker)
    is_waiting = is_waiting || transport.items_of(worker) > 0;
  return is_waiting || !returned_.empty() || !(source_ended_ || stop_);
}

/// The worker with the fewest items among those that can take another.
std::optional<std::size_t> Scheduler::freest_worker(const Transport& transport) const {
  std::optional<std::size_t> best;
  for (std::size_t worker = 0; worker < transport.workers(); ++worker)
    if ((!best || transport.items_of(worker) < transport.items_of(*best)) &&
        transport.can_take_another(worker))
      best = worker;
  return best;
}

std::optional<Assignment> Scheduler::next_item() {
  if (!returned_.empty()) {
    Assignment first = std::move(returned_.front());
    returned_.pop_front();
    return first;
  }
  if (!can_start_item() || !source_.is_ready()) return std::nullopt;
  std::optional<Item> item = source_.next();
  source_ended_ = !item;
  if (!item) return std::nullopt;
  return Assignment{started_++, std::move(*item)};
}

void Scheduler::take_back(std::deque<Assignment> assignments) {
  returned_.insert(returned_.begin(), std::make_move_iterator(assignments.begin()),
                   std::make_move_iterator(assignments.end()));
}

int Scheduler::awaited_source(const Transport& transport) const {
  const bool is_awaited = returned_.empty() && can_start_item() && freest_worker(transport);
  return is_awaited ? source_.descriptor() : -1;
}

void Scheduler::finish(std::size_t sequence, Item item, Outcome outcome) {
  outcome.number = item.number;
  outcome.name = std::move(item.name);
  if (outcome.status == Status::failed && options_.fail_fast) stop_ = true;
  finished_.add(sequence, std::move(outcome));
}

void Scheduler::report() {
  std::vector<Outcome> ready = finished_.take();
  if (ready.empty()) return;
  calls_.report(ready);
  finished_.forget(ready);
}

}  // namespace attn
