// Each allocation of a job fails once. The result is an error, never a wrong result or a partial
// file, and no file is left behind.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "attn/explain/explain.h"
#include "attn/io/npz.h"
#include "attn/io/open_file.h"
#include "attn/job/conventions.h"
#include "attn/job/job.h"
#include "attn/job/job_schema.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/plan_text.h"
#include "attn/run/result_file.h"
#include "attn/run/result_writer.h"
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
  "softcap": 30, "scale": 0.5, "convention": "torch", "weights_layout": "in-out", "outputs": ["positions", "context"]})";

const std::vector<std::string> kJobs = {
    kDrawn,
    R"({"Q": [[1, 2], [3, 4]], "K": [["NaN", 0.5], [1, 1]], "V": [[true], [false]],
        "mask": [[1, 0], [1, 1]], "score": "cosine", "softmax": {"axis": "all"}})",
    R"({"seed": "1234567890123456789012", "generator": "default_rng", "scale": "none",
        "Q": {"random": {"shape": [2, 3], "dtype": "float32"}}, "K": {"uniform": {"shape": [2, 3]}},
        "V": {"integers": {"high": 9, "shape": [2, 2], "endpoint": true}}, "rows": [-1],
        "tokens": ["more than a small string holds", "b"], "mask": [[false, false], [false, false]]})",
    R"({"seed": 18446744073709551615, "generator": "default_rng", "temperature": 2,
        "Q": {"random": {"shape": [3, 1]}}, "K": [[1]], "V": [[1]], "normaliser": "sparsemax"})",
    R"({"seed": [1.0, 2], "embeddings": {"rand": {"shape": [3, 4]}}, "memory": [[1, 2, 3, 4]],
        "W_Q": {"random": {"shape": [4, 4]}}, "W_K": {"random_sample": {"shape": [4, 4]}},
        "W_V": {"standard_normal": {"shape": [4, 4]}}, "b_K": {"choice": {"n": 4, "shape": 4}},
        "b_V": {"permutation": {"values": [4, 5, 6, 7]}}, "heads": 2, "qk_norm": "rms"})",
    R"({"Q": [[[[1, 2]], [[2, 3]]]], "K": [[[[1, 2]], [[2, 3]]]], "V": [[[[1, 2]], [[2, 3]]]],
        "past_K": [[[[1, 2]], [[2, 3]]]], "past_V": [[[[1, 2]], [[2, 3]]]], "alibi": true,
        "rotary": {"kind": "half"}, "causal": true, "outputs": ["mean_weights", "present_K"]})",
    R"({"Q": [[[1, 2]]], "K": [[[1, 2], [2, 3]]], "V": [[[1], [2]]], "q_norm": [1, 1], "k_norm": [1, 2], "qk_norm": "rms",
        "sinks": [0.5], "mask": [[0.0, 1.0]], "tokens": ["a", "b", "c"], "scale": "auto"})",
    R"({"Q": [[1, 2], [3, 4], [5, 6]], "K": [[1, 2], [2, 3]], "V": [[1], [2]], "score": "cosine",
        "causal": "top-left", "alignment": "top-left", "tokens": ["a", "b", "c", "d"],
        "softcap": 5, "rows": [0, 2]})"};

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
    R"({"querys": [[1]], "heads ": 2, "softmax": {"axes": 1}})",
    R"({"Q": [[1, 2]], "K": [[1, 2]], "causal": "top-left", "alignment": "bottom-right"})",
    R"({"seed": 1, "generator": "default_rng", "Q": {"randm": {"shape": [2, 2]}}, "K": [[1]]})",
    R"({"seed": 1, "generator": "default_rng", "Q": {"random": {"shape": [2, 2], "dtype": "int8"}},
        "K": [[1, 2]]})",
    R"({"seed": 1, "Q": {"rand": {"shape": [1000000, 1000000]}}, "K": [[1, 2]]})",
    R"({"seed": [], "Q": {"rand": {"shape": [1, 1]}}, "K": [[1, 2]]})",
    R"({"Q": "-#Q.npy", "K": "/nowhere/K.npy"})",
    R"({"Q": "", "K": [[1, 2]]})"};

/// The steps of `attn run`, from the job to the files.
void run(const std::string& json, const std::string& folder, const std::vector<std::string>& to) {
  TensorFiles files;
  Job job = make_job(parse_document(json, "job.json", folder), files);
  if (to.empty()) job.outputs = explained_outputs(job);
  const PreparedJob prepared = prepare_job(job);
  const MemoryEstimate memory(prepared.plan);
  memory.require(job.document.name, 1 << 30);
  plan_json(prepared.plan, memory), plan_text(prepared.plan, memory);
  std::vector<OutputTarget> targets;
  for (const std::string& path : to) targets.push_back(parse_target(path));
  ResultWriter writer(targets, names_of(job.outputs), {.digest = true});
  const Result result = execute({job, prepared, &files, job.outputs, NanPolicy::warn}).result;
  if (to.empty()) explain(job, prepared.inputs, result.outputs, {});
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

TEST_CASE("memory that runs out anywhere in a job leaves no file, complete, partial or open",
          "[memory]") {
  const ScratchFolder folder;
  const std::string results = folder.path() / "results/";
  const std::vector<std::string> targets = {results + "a.json", results + "a.npz",
                                            results + "a.safetensors", results + "new/",
                                            "positions=" + results + "positions.csv"};
  std::filesystem::create_directory(results);
  std::vector<Descriptor> held;  // so that the numbers of others have two digits
  while (held.empty() || held.back().get() < 10) held.emplace_back(dup(STDERR_FILENO));
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
  const std::string document = GENERATE(from_range(kJobs));
  run(document, "results", {});
  CHECK(fail_each_allocation([&] { run(document, "results", {}); }) > 100);
}

TEST_CASE("memory that runs out while a result is read is an error", "[memory]") {
  const ScratchFolder folder;
  for (const char* const name : {"a.json", "a.npz", "a.safetensors"}) {
    const std::string path = folder.path() / name;
    run(kDrawn, "", {path});
    const auto read = [&] {
      TensorFiles files;
      if (read_result(path, files).tokens.size() != 3) FAIL("tokens are missing");
    };
    CHECK(fail_each_allocation(read) > 10);
  }
}

TEST_CASE("memory that runs out while an archive is read as a job is an error", "[memory]") {
  const Tensor square = Tensor::of<double>({2, 2}, {1, 2, 3, 4});
  TensorMap torch, keras, options;
  torch.set("in_proj_weight", Tensor::of<double>({6, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  torch.set("in_proj_bias", Tensor::of<double>({6}, {1, 2, 3, 4, 5, 6}));
  torch.set("out_proj.weight", square);
  torch.set("embeddings", square);
  keras.set("layer/query/kernel", Tensor::of<double>({2, 1, 2}, {1, 2, 3, 4}));
  keras.set("layer/key/bias", Tensor::of<double>({1, 2}, {1, 2}));
  keras.set("position.base", Tensor::of<double>({}, {100}));
  options.set("heads", Tensor::of<std::int64_t>({1, 1}, {1}));
  options.set("haeds", square);
  const ScratchFolder folder;
  int number = 0;
  for (const TensorMap& tensors : {torch, keras, options}) {
    const std::string path = folder.path() / (std::to_string(++number) + ".npz");
    OutputFile file(path, {});
    write_tensors(row_of(Format::npz), tensors, {}, file);
    file.commit();
    const auto read = [&] {
      TensorFiles files;
      read_document(path, files);
    };
    CHECK(fail_each_allocation(read) > 10);
  }
}

TEST_CASE("memory that runs out while an error is reported is an error", "[memory]") {
  const std::string document = GENERATE(from_range(kWrong));
  const auto refused = [](bool done) {
    if (done) FAIL("a wrong job was accepted");
  };
  CHECK(fail_each_allocation([&] { run(document, "nowhere", {}); }, refused) > 5);
}

TEST_CASE("memory that runs out while too large a job is refused", "[memory]") {
  const Plan plan{.outputs = {{Output::weights, {1000, 1000}, DType::f64, 8000000, 2e6, true}},
                  .bytes = 9000000,
                  .path = "reference",
                  .fallback_reason = "alibi"};
  const auto refused = [](bool done) {
    if (done) FAIL("too large a job was accepted");
  };
  CHECK(fail_each_allocation([&] { MemoryEstimate(plan).require("a long name of a job", 1); },
                             refused) > 5);
}

TEST_CASE("text printed without a job is complete or absent if memory runs out", "[memory]") {
  const auto print = GENERATE(&job_schema, &conventions_table);
  const std::string whole = print();
  std::string text;
  const auto same = [&](bool done) {
    if (done && text != whole) FAIL("printed something else");
  };
  CHECK(fail_each_allocation([&] { text = print(); }, same) > 20);
}
