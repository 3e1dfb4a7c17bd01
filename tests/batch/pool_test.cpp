// Many items on a few threads, where memory for the threads themselves runs out.
#include "attn/batch/pool.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "support/failing_new.h"

using namespace attn;

namespace {

class SixItems final : public ItemSource {
 public:
  std::optional<Item> next() override {
    if (given_ == 6) return std::nullopt;
    return Item{++given_, "item", ""};
  }
  std::optional<std::size_t> count() const override { return 6; }

 private:
  std::size_t given_ = 0;
};

/// What outlives run_pool() here, so that a thread that it leaves behind is seen and does no harm.
struct Run {
  SixItems source;
  std::atomic<bool> stop = false;
  std::atomic<int> at_work = 0;
  std::size_t reported = 0;
};

}  // namespace

TEST_CASE("memory that runs out while a pool starts leaves no thread at work", "[memory]") {
  std::vector<std::unique_ptr<Run>> runs;
  const auto act = [&] {
    Run& run = *runs.emplace_back(std::make_unique<Run>());
    PoolTasks tasks;
    tasks.begin = [] {};
    tasks.tick = [] {};
    tasks.work = [&run](const Item& item, const Claim&, const std::string&) {
      ++run.at_work;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      --run.at_work;
      return Outcome{.number = item.number};
    };
    tasks.report = [&run](std::span<const Outcome> outcomes) { run.reported += outcomes.size(); };
    const PoolEnd end = run_pool(run.source, {.threads = 3}, tasks, run.stop);
    if (end.fault) std::rethrow_exception(end.fault);
  };
  const auto after = [&](bool done) {
    const bool at_work = !runs.empty() && runs.back()->at_work != 0;
    if (at_work || (done && runs.back()->reported != 6))
      FAIL("done: " << done << ", at work: " << at_work);
  };
  CHECK(fail_each_allocation(act, after) > 6);
}
