// The worker pool when memory runs out, and time limits of items.
#include "attn/batch/pool.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "support/failing_new.h"
#include "support/items.h"

using namespace attn;

namespace {

/// Outlives run_pool(), since overdue threads still use it.
struct Run {
  explicit Run(std::size_t items) : source(items) {}
  Items source;
  std::atomic<bool> stop = false;
  std::atomic<int> active = 0;
  std::size_t reported = 0, failed = 0;
};

void sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Times are in milliseconds.
PoolCalls calls_of(Run& run, const std::function<int(const Item&)>& item_time,
                   int report_time = 0) {
  PoolCalls calls;
  calls.begin = [] {};
  calls.tick = [] {};
  calls.work = [&run, item_time](const Item& item, const CompletionToken&, const std::string&) {
    ++run.active;
    sleep(item_time(item));
    --run.active;
    return Outcome{.number = item.number};
  };
  calls.report = [&run, report_time](std::span<const Outcome> outcomes) {
    for (const Outcome& outcome : outcomes) run.failed += outcome.status == Status::failed;
    run.reported += outcomes.size();
    sleep(report_time);
  };
  return calls;
}

}  // namespace

TEST_CASE("no thread is left running when memory runs out while a pool starts", "[memory]") {
  std::vector<std::unique_ptr<Run>> runs;
  const auto act = [&] {
    Run& run = *runs.emplace_back(std::make_unique<Run>(6));
    const PoolCalls calls = calls_of(run, [](const Item&) { return 2; });
    const PoolEnd end = run_pool(run.source, {.threads = 3}, calls, run.stop);
    if (end.fault) std::rethrow_exception(end.fault);
  };
  const auto after = [&](bool done) {
    const bool is_active = !runs.empty() && runs.back()->active != 0;
    if (is_active || (done && runs.back()->reported != 6))
      FAIL("done: " << done << ", active: " << is_active);
  };
  CHECK(fail_each_allocation(act, after) > 6);
}

TEST_CASE("overdue items are reported while others finish faster than they are reported") {
  Run run(600);
  const auto item_time = [](const Item& item) {
    return item.number <= 4 || item.number == 300 ? 1500 : 3;
  };
  const PoolCalls calls = calls_of(run, item_time, 5);
  const PoolEnd end = run_pool(run.source, {.threads = 4, .timeout = 0.2}, calls, run.stop);
  while (run.active > 0) sleep(10);
  CHECK(end.fault == nullptr);
  CHECK(run.reported == 600);
  CHECK(run.failed == 5);
}
