// A batch on a team of threads.
#include "attn-mpi/team_pool.h"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "attn/batch/message.h"
#include "support/items.h"
#include "support/thread_team.h"

using namespace attn;

namespace {

using Work = std::function<Outcome(const Item&)>;

struct TeamRunResult {
  PoolEnd end;
  std::vector<std::size_t> reported = {};  ///< numbers, in order
  std::size_t failed = 0;
};

/// Runs items on a team; `report` is called before outcomes are recorded. Members other than 0 have
/// `workers_of_others` workers, if given.
TeamRunResult run_on_team(
    std::size_t members, std::size_t items, const PoolOptions& options, const Work& work,
    const std::function<void()>& report = [] {}, std::size_t workers_of_others = 0) {
  TeamRunResult result;
  run_team(members, [&](Team& team) {
    PoolCalls calls;
    calls.begin = [] {};
    calls.tick = [] {};
    calls.work = [&](const Item& item, const CompletionToken&, const std::string&) {
      Outcome outcome = work(item);
      outcome.number = item.number;
      return outcome;
    };
    if (team.rank() > 0) {
      PoolOptions own = options;
      if (workers_of_others > 0) own.threads = workers_of_others;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // member 0 may have no more items
      run_items_of_team(own, calls, team);
      team.send(0, std::array{std::byte()});
      return;
    }
    calls.report = [&](std::span<const Outcome> outcomes) {
      report();
      for (const Outcome& outcome : outcomes) {
        result.reported.push_back(outcome.number);
        result.failed += outcome.status == Status::failed;
        CHECK(outcome.name == "item");
        CHECK(outcome.text == "result " + std::to_string(outcome.number));
      }
    };
    Items source(items);
    std::atomic<bool> stop = false;
    result.end = run_team_pool(source, options, calls, team, stop);
    if (result.end.fault) throw std::runtime_error("ends the others");
    std::array<std::byte, 1> ended = {};
    for (std::size_t rank = 1; rank < members; ++rank) team.receive(rank, ended);
    CHECK_FALSE(team.take(Mailbox::replies));
  });
  return result;
}

Outcome done(const Item& item) { return {.text = "result " + std::to_string(item.number)}; }

}  // namespace

TEST_CASE("a team runs each item of a batch once, and reports in order") {
  for (const std::size_t members : {1, 2, 5})
    for (const std::size_t threads : {1, 3}) {
      const TeamRunResult run =
          run_on_team(members, 700, {.threads = threads, .in_order = true}, done);
      REQUIRE(run.reported.size() == 700);
      for (std::size_t i = 0; i < 700; ++i) CHECK(run.reported[i] == i + 1);
    }
}

TEST_CASE("a team with more members than items ends, and leaves no message") {
  CHECK(run_on_team(4, 2, {}, done).reported.size() == 2);
  CHECK(run_on_team(4, 0, {}, done).reported.empty());
}

TEST_CASE("items that wait for a slow one on a member of a team are run by others") {
  std::atomic<int> finished = 0;
  std::atomic<bool> are_others_done = false;
  run_on_team(2, 3000, {.threads = 1}, [&](const Item& item) {
    if (item.number == 1500)
      for (int i = 0; i < 20000 && !are_others_done; ++i) {
        are_others_done = finished == 2999;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    ++finished;
    return done(item);
  });
  CHECK(are_others_done);
}

TEST_CASE("each member of a team keeps all of its workers busy") {
  std::atomic<int> running = 0;
  std::atomic<bool> are_all_busy = false;
  const auto work = [&](const Item& item) {
    if (++running == 4) are_all_busy = true;
    for (int i = 0; i < 20000 && !are_all_busy; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --running;
    return done(item);
  };
  run_on_team(
      2, 4, {.threads = 1}, work, [] {}, 3);
  CHECK(are_all_busy);
}

TEST_CASE("a team starts no further item of a batch after one has failed, with fail_fast") {
  const TeamRunResult run =
      run_on_team(3, 100000, {.threads = 1, .fail_fast = true}, [](const Item& item) {
        Outcome outcome = done(item);
        if (item.number == 5) outcome.status = Status::failed;
        return outcome;
      });
  CHECK(run.failed == 1);
  CHECK(run.reported.size() < 1000);
}

TEST_CASE("a member of a team that cannot report ends the batch") {
  const auto fail = [] { throw std::runtime_error("full"); };
  CHECK_THROWS_WITH(run_on_team(2, 50, {}, done, fail), "ends the others");
}

TEST_CASE("messages about items of a team are read as they were written") {
  std::string bytes;
  append_return(bytes, 7);
  std::string_view rest = bytes;
  const std::optional<WorkerReply> reply = take_reply(rest, "");
  REQUIRE(reply);
  CHECK(reply->kind == WorkerReply::Kind::returned);
  CHECK(reply->sequence == 7);
  CHECK(rest.empty());
  bytes.clear();
  append_workers(bytes, 12);
  rest = bytes;
  CHECK(take_reply(rest, "")->workers == 12);
  bytes.clear();
  append_end(bytes);
  rest = bytes;
  CHECK(take_request(rest)->kind == WorkerRequest::Kind::end);
}
