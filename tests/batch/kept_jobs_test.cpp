// Which prepared jobs are reused.
#include "attn/batch/kept_jobs.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "attn/io/tensor_file.h"
#include "attn/job/document.h"
#include "attn/job/job.h"

using namespace attn;

namespace {

Job job_of(const std::string& json) {
  TensorFiles files;
  return make_job(parse_document(json, "job.json", ""), files);
}

const std::string kPlain = R"({"Q": [[1, 0.5]], "K": [[1, 0], [0, 1]]})";

/// Whether the second job reuses what the first one has left, which is marked.
bool is_reused(const std::string& first, const std::string& second) {
  constexpr double kMark = -1;
  KeptJobs kept;
  std::unique_ptr<PreparedJob> prepared = kept.prepare(job_of(first));
  CHECK(prepared->plan.flops != kMark);
  prepared->plan.flops = kMark;
  kept.keep(std::move(prepared));
  return kept.prepare(job_of(second))->plan.flops == kMark;
}

}  // namespace

TEST_CASE("a small job that differs only in numbers is reused") {
  CHECK(is_reused(kPlain, R"({"Q": [[3, 4.5]], "K": [[7, 8], [9, 10]]})"));
  CHECK(is_reused(R"({"seed": 1, "Q": {"randn": {"shape": [2, 3]}}, "K": [[1, 2, 3]]})",
                  R"({"seed": 2, "Q": {"randn": {"shape": [2, 3]}}, "K": [[1, 2, 4]]})"));
}

TEST_CASE("other jobs are not reused") {
  CHECK_FALSE(is_reused(kPlain, R"({"Q": [[1, 2]], "K": [[1, 0], [0, 1]]})"));  // integers
  CHECK_FALSE(is_reused(kPlain, R"({"Q": [[1, 0.5]], "K": [[1, 0]]})"));
  CHECK_FALSE(is_reused(kPlain, R"({"Q": [[1, 0.5]], "K": [[1, 0], [0, 1]], "causal": true})"));
  CHECK_FALSE(
      is_reused(kPlain, R"({"Q": [[1, 0.5]], "K": [[1, 0], [0, 1]], "outputs": ["weights"]})"));
}

TEST_CASE("jobs with masks and large jobs are not kept") {
  for (const std::string json :
       {R"({"Q": [[1, 0.5]], "K": [[1, 0], [0, 1]], "mask": [[true, false]]})",
        R"({"seed": 1, "Q": {"randn": {"shape": [200, 8]}}, "K": {"randn": {"shape": [200, 8]}}})",
        R"({"seed": 1, "Q": {"randn": {"shape": [5000, 1]}}, "K": [[1]], "outputs": ["keys"]})"})
    CHECK_FALSE(is_reused(json, json));
}

TEST_CASE("nothing is reused after clear()") {
  KeptJobs kept;
  std::unique_ptr<PreparedJob> prepared = kept.prepare(job_of(kPlain));
  prepared->plan.flops = -1;
  kept.keep(std::move(prepared));
  kept.clear();
  CHECK(kept.prepare(job_of(kPlain))->plan.flops > 0);
}
