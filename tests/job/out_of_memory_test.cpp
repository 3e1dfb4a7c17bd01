// Each allocation of a job fails once: what comes then is an error, never a result that is wrong
// or a file that is half there, and nothing stays behind.
#include <catch2/catch.hpp>
#include <filesystem>

#include "attn/job/conventions.h"
#include "attn/job/doubts.h"
#include "attn/job/explain.h"
#include "attn/job/fields.h"
#include "attn/job/job.h"
#include "attn/job/limits.h"
#include "attn/job/nan.h"
#include "attn/job/result_writer.h"
#include "support/failing_new.h"
#include "support/run_attn.h"

using namespace attn;

namespace {

constexpr const char* kDrawn = R"({
  "tokens": ["I", "am", "here"], "seed": [1, 2], "position": {"kind": "sinusoidal", "base": 100},
  "embeddings": {"normal": {"shape": [3, 4], "loc": 1, "scale": 2}},
  "W_Q": {"randint": {"low": 0, "high": 3, "shape": [4, 4], "dtype": "int32"}},
  "W_K": {"uniform": {"low": 0, "high": 1, "shape": [4, 4]}},
  "W_V": {"choice": {"values": [1, 2, 3], "shape": [4, 4], "p": [0.5, 0.25, 0.25]}},
  "b_Q": {"permutation": {"n": 4}}, "b_O": {"shuffle": {"values": [1, 2]}},
  "W_O": {"randn": {"shape": [4, 2]}}, "heads": 2, "causal": "bottom-right", "window": [1, -1],
  "softcap": 30, "scale": 0.5, "convention": "torch", "outputs": ["positions", "context"]})";

constexpr const char* kGiven = R"({
  "Q": [[1, 2], [3, 4]], "K": [["NaN", 0.5], [1, 1]], "V": [[true], [false]],
  "mask": [[1, 0], [1, 1]], "score": "cosine", "softmax": {"axis": "all"}})";

const std::vector<std::string> kWrong = {
    R"({"Q": [[1, 2], [3]], "K": {"randint": {"hihg": 3}}, "V": "missing.npy", "seed": 1})",
    R"({"scale": "big", "heads": 0, "window": [1], "outputs": ["score"], "seed": -1,
        "tokens": [1], "causal": 3, "softmax": {"axis": ["keys", "all", "both", "neither", "x"]}})",
    R"({"Q": [[1, 2]], "K": [[1, 2]], "V": [[1]], "layout": "blhd", "mask_polarity": "ignore",
        "query_lengths": [1], "rotary": {"kind": "half"}})",
    R"({"Q": [[1, 2]], "K": [[1]], "V": [[1], [2]], "rows": [3]})",
    R"({"seed": 1, "Q": {"choice": {"n": 3, "shape": [1, 1], "p": ["a"]}}, "K": {"rnd": {}},
        "V": {"permutation": {"n": -1}}})",
    R"({"seed": 1, "Q": {"integers": {"high": 3}}, "K": {"random": {"shape": "2"}},
        "V": {"shuffle": {"values": [1], "loc": 1}}, "key_lengths": [3]})",
    R"({"querys": [[1]], "heads ": 2, "softmax": {"axes": 1}})"};

/// As `attn run` goes: from the document to files.
void run(const std::string& json, const std::string& folder, const std::vector<std::string>& to) {
  TensorFiles files;
  const Document document = parse_document(json, "job.json", folder);
  Job job = make_job(document, files);
  if (to.empty()) job.outputs = explained_outputs(job);
  const PreparedJob prepared = prepare_job(job, document);
  require_memory(prepared.plan, document.name, 1 << 30);
  std::vector<OutputTarget> targets;
  for (const std::string& path : to) targets.push_back(parse_target(path));
  ResultWriter writer(targets, job.outputs, {.digest = true});
  const Result result = run_job(job, prepared, document, files);
  nan_warning(job, result, NanPolicy::warn);
  mask_doubt(job);
  if (to.empty()) explain(job, result.outputs, {});
  writer.write(result);
  writer.commit();
}

std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t entries(const std::filesystem::path& folder) {
  const std::filesystem::recursive_directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("memory that runs out anywhere in a job leaves no file, no part of one, none open",
          "[memory]") {
  const ScratchFolder folder;
  const std::string results = folder.path() / "results/";
  const std::vector<std::string> targets = {results + "a.json", results + "a.npz",
                                            results + "a.safetensors", results + "new/",
                                            "positions=" + results + "positions.csv"};
  std::filesystem::create_directory(results);
  const std::size_t open = open_files();
  const auto clean = [&](bool done) {
    if (done != (entries(results) > 0) || open_files() != open)
      FAIL("done: " << done << "; " << entries(results) << " files, " << open_files() - open
                    << " still open");
    std::filesystem::remove_all(results);
    std::filesystem::create_directory(results);
  };
  CHECK(fail_each_allocation([&] { run(kDrawn, "", targets); }, clean) > 500);
}

TEST_CASE("memory that runs out in a job is an error or changes nothing", "[memory]") {
  const std::string document = GENERATE(kDrawn, kGiven);
  CHECK(fail_each_allocation([&] { run(document, "", {}); }) > 500);
}

TEST_CASE("memory that runs out while an error is told is an error, too", "[memory]") {
  const std::string document = GENERATE(from_range(kWrong));
  const auto refused = [](bool done) {
    if (done) FAIL("a wrong job was taken");
  };
  CHECK(fail_each_allocation([&] { run(document, "", {}); }, refused) > 20);
}

TEST_CASE("what is printed without a job is whole or not there, however much memory there is",
          "[memory]") {
  const auto print = GENERATE(&job_schema, &conventions_table);
  const std::string whole = print();
  std::string text;
  const auto same = [&](bool done) {
    if (done && text != whole) FAIL("printed something else");
  };
  CHECK(fail_each_allocation([&] { text = print(); }, same) > 20);
}
