// The worker pool when memory runs out, and time limits of items.
#include "attn/batch/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <thread>

#include "attn/io/file.h"
#include "attn/io/mapped_file.h"
#include "support/child.h"
#include "support/failing_new.h"
#include "support/items.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

/// Outlives run_pool(), since overdue threads still use it.
struct PoolRun {
  explicit PoolRun(std::size_t items) : source(items) {}
  Items source;
  std::atomic<bool> stop = false;
  std::atomic<int> active = 0;
  std::size_t reported = 0, failed = 0;
};

void sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Times are in milliseconds.
PoolCalls calls_of(PoolRun& run, const std::function<int(const Item&)>& item_time,
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
  std::vector<std::unique_ptr<PoolRun>> runs;
  const auto act = [&] {
    PoolRun& run = *runs.emplace_back(std::make_unique<PoolRun>(6));
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
  PoolRun run(600);
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

TEST_CASE("a mapped file that a thread of a pool finds truncated ends the program with a message") {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.write("cut", std::string(300000, 'm'));
  const auto [status, text] = end_of_child([&] {
    const FileBytes file =
        read_file(path.string(), std::numeric_limits<std::size_t>::max(), FileAccess::map);
    if (truncate(path.c_str(), 0) != 0) _exit(1);
    PoolRun run(1);
    PoolCalls calls = calls_of(run, [](const Item&) { return 0; });
    calls.work = [&](const Item& item, const CompletionToken&, const std::string&) {
      touch_pages(file.data.get(), file.size);
      return Outcome{.number = item.number};
    };
    run_pool(run.source, {.threads = 2}, calls, run.stop);
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 74));
  CHECK(text.ends_with("/cut: was truncated while being read, or its disk failed\n"));
}
