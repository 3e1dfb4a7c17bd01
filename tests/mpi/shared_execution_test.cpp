// Jobs that a team of threads computes have the files and warnings of one process.
#include "attn-mpi/shared_execution.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "attn/base/error.h"
#include "attn/job/document.h"
#include "attn/run/result_writer.h"
#include "support/run_attn.h"
#include "support/thread_team.h"

using namespace attn;
using Catch::Matchers::Contains;

namespace {

/// A job as one member has read it.
struct SharedJob {
  explicit SharedJob(const std::string& json)
      : job(make_job(parse_document(json, "job", ""), files)) {}
  TensorFiles files;
  Job job;
};

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Computes the job and writes its outputs to `path`. Returns the warnings, of member 0.
std::vector<std::string> write_job(const std::string& json, const std::string& path, Team* team) {
  const std::vector<OutputTarget> targets = {parse_target(path)};
  SharedJob own(json);
  const std::vector<std::string> names = names_of(own.job.outputs);
  const OutputSet by_rows = outputs_for_rows(targets, own.job.outputs);
  PreparedJob prepared = prepare_job(own.job, team == nullptr ? by_rows : OutputSet());
  const ExecutionRequest request{own.job, prepared, &own.files, own.job.outputs, NanPolicy::warn};
  std::optional<Sharing> sharing;
  if (team != nullptr) {
    sharing = share_work(prepared.inputs, prepared.plan, team->size());
    REQUIRE(sharing->kind != Sharing::Kind::none);
    if (sharing->kind == Sharing::Kind::rows) stream_rows(prepared.plan, by_rows);
    if (team->rank() > 0) {
      execute_shared(request, *sharing, *team, nullptr);
      return {};
    }
  }
  ResultWriter writer(targets, names, {});
  const auto [result, warnings] =
      sharing ? execute_shared(request, *sharing, *team, &writer) : execute(request, &writer);
  writer.write(result);
  writer.commit();
  return warnings;
}

/// Compares the results of one process and of teams.
void compare_teams(const std::string& json, const std::string& suffix) {
  const ScratchFolder scratch;
  const std::string one = scratch.path() / ("one" + suffix);
  const std::vector<std::string> warnings = write_job(json, one, nullptr);
  for (const std::size_t members : {1, 2, 3}) {
    const std::string many = scratch.path() / ("of" + std::to_string(members) + suffix);
    run_team(members, [&](Team& team) {
      const std::vector<std::string> found = write_job(json, many, &team);
      if (team.rank() == 0) CHECK(found == warnings);
    });
    INFO(suffix << ", " << members);
    CHECK(text_of_file(many) == text_of_file(one));
  }
}

/// Random queries, keys and values, and more members of the JSON object.
std::string random_job(std::size_t queries, std::size_t keys, const std::string& more) {
  const auto draw = [](std::size_t rows) {
    return "{\"standard_normal\": {\"size\": [2, " + std::to_string(rows) + ", 8]}}";
  };
  return "{\"seed\": 1, \"Q\": " + draw(queries) + ", \"K\": " + draw(keys) +
         ", \"V\": " + draw(keys) + ", " + more + "}";
}

const std::string kRows = R"("causal": true, "outputs": ["context", "weights", "entropy"])";
const std::string kKeys = R"("outputs": ["context", "logsumexp"])";

}  // namespace

TEST_CASE("a team writes the queries of each member into the files of one process") {
  for (const char* suffix : {".npz", ".safetensors", ".json"})
    compare_teams(random_job(300, 80, kRows), suffix);
}

TEST_CASE("a team adds up the weights of all queries") {
  compare_teams(random_job(200, 60, R"("outputs": ["key_weights", "context"])"), ".npz");
}

TEST_CASE("a team shares the keys of few queries and writes the file of one process") {
  compare_teams(random_job(2, 3000, kKeys), ".npz");
}

TEST_CASE("a team warns of NaN and of overflows as one process does") {
  compare_teams(random_job(200, 60, R"("empty_rows": "nan", "key_lengths": [0, 60],
                                       "outputs": ["context"])"),
                ".npz");
  compare_teams(random_job(200, 60, R"("empty_rows": "nan", "key_lengths": [0, 60],
                                       "outputs": ["context"])"),
                ".json");
}

TEST_CASE("a member that sees other regions than member 0 ends the work of a team") {
  const ScratchFolder scratch;
  const std::string path = scratch.path() / "none" / "r.npz";
  const auto act = [&](Team& team) {
    if (team.rank() == 0) throw Error(ErrorKind::io, "ended");
    write_job(random_job(300, 80, kRows), path, &team);
  };
  CHECK_THROWS_AS(run_team(2, act), Error);
}

TEST_CASE("how a job is shared is described as text and as JSON") {
  struct Case {
    std::string json, text, part;
  };
  const std::vector<Case> cases = {
      {random_job(300, 80, kRows), "3 ranks, which share the queries; balance ",
       R"({"shared":"queries","balance":)"},
      {random_job(2, 3000, kKeys), "3 ranks, which share the keys; balance 100.0 %\n",
       R"({"shared":"keys","balance":1.0000,"ranks":[{"queries":2,"memory":)"},
      {random_job(3, 3, kRows),
       "3 ranks, of which rank 0 computes everything (because of few queries); balance 33.3 %\n",
       R"({"shared":"nothing","reason":"few queries","balance":0.3333,"ranks":[{"queries":3,)"},
  };
  for (const Case& c : cases) {
    const SharedJob own(c.json);
    PreparedJob prepared = prepare_job(own.job);
    const Sharing sharing = share_work(prepared.inputs, prepared.plan, 3);
    CHECK_THAT(sharing_text(own.job, prepared, sharing, 3), Catch::StartsWith(c.text));
    CHECK_THAT(sharing_json(own.job, prepared, sharing, 3), Catch::StartsWith(c.part));
    CHECK_THAT(sharing_text(own.job, prepared, sharing, 3), Contains("rank 2: "));
  }
}

TEST_CASE("only outputs that are not written by row are collected at member 0") {
  const SharedJob own(random_job(300, 80, kRows));
  PreparedJob prepared = prepare_job(own.job);
  const Sharing sharing = share_work(prepared.inputs, prepared.plan, 2);
  const std::size_t context = 2 * 300 * 8 * 8, weights = 2 * 300 * 80 * 8, entropy = 2 * 300 * 8;
  const std::size_t queries = count_of(sharing.rows[1]);
  CHECK(bytes_to_gather(prepared.plan, sharing) ==
        context + weights + entropy + weights * queries / 300);
  stream_rows(prepared.plan, {Output::weights});
  CHECK(bytes_to_gather(prepared.plan, sharing) == context + entropy + context * queries / 300);
}
