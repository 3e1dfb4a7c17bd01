// Many items on a few threads: where memory for the threads runs out, and where time does.
#include "attn/batch/pool.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "support/failing_new.h"
#include "support/items.h"

using namespace attn;

namespace {

/// What outlives run_pool() here, so that a thread that it leaves behind is seen and does no harm.
struct Run {
  explicit Run(std::size_t items) : source(items) {}
  Items source;
  std::atomic<bool> stop = false;
  std::atomic<int> at_work = 0;
  std::size_t reported = 0, failed = 0;
};

void sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Each item takes as many milliseconds as `item_takes` says, each report `report_takes`.
PoolCalls calls_of(Run& run, const std::function<int(const Item&)>& item_takes,
                   int report_takes = 0) {
  PoolCalls calls;
  calls.begin = [] {};
  calls.tick = [] {};
  calls.work = [&run, item_takes](const Item& item, const Claim&, const std::string&) {
    ++run.at_work;
    sleep(item_takes(item));
    --run.at_work;
    return Outcome{.number = item.number};
  };
  calls.report = [&run, report_takes](std::span<const Outcome> outcomes) {
    for (const Outcome& outcome : outcomes) run.failed += outcome.status == Status::failed;
    run.reported += outcomes.size();
    sleep(report_takes);
  };
  return calls;
}

}  // namespace

TEST_CASE("memory that runs out while a pool starts leaves no thread at work", "[memory]") {
  std::vector<std::unique_ptr<Run>> runs;
  const auto act = [&] {
    Run& run = *runs.emplace_back(std::make_unique<Run>(6));
    const PoolCalls calls = calls_of(run, [](const Item&) { return 2; });
    const PoolEnd end = run_pool(run.source, {.threads = 3}, calls, run.stop);
    if (end.fault) std::rethrow_exception(end.fault);
  };
  const auto after = [&](bool done) {
    const bool at_work = !runs.empty() && runs.back()->at_work != 0;
    if (at_work || (done && runs.back()->reported != 6))
      FAIL("done: " << done << ", at work: " << at_work);
  };
  CHECK(fail_each_allocation(act, after) > 6);
}

TEST_CASE("an item that is overdue is told, also while others finish faster than they are told") {
  Run run(600);
  const auto item_takes = [](const Item& item) {
    return item.number <= 4 || item.number == 300 ? 1500 : 3;
  };
  const PoolCalls calls = calls_of(run, item_takes, 5);
  const PoolEnd end = run_pool(run.source, {.threads = 4, .timeout = 0.2}, calls, run.stop);
  while (run.at_work > 0) sleep(10);
  CHECK(end.fault == nullptr);
  CHECK(run.reported == 600);
  CHECK(run.failed == 5);
}
