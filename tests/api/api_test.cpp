#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attn/attn.h"
#include "support/failing_new.h"

namespace {

using OwnedResult = std::unique_ptr<attn_result, void (*)(attn_result*)>;

/// Two queries, keys and values of two columns.
struct TwoWords {
  std::array<double, 4> q{1, 0, 0, 1}, k{1, 0, 0, 1}, v{1, 2, 3, 4};
  std::array<std::size_t, 2> shape{2, 2};

  attn_tensor tensor(const char* name, const std::array<double, 4>& values) const {
    return {name, "float64", 2, shape.data(), nullptr, values.data()};
  }
  std::vector<attn_tensor> tensors() const {
    return {tensor("Q", q), tensor("K", k), tensor("V", v)};
  }
};

OwnedResult run(const char* job, const std::vector<attn_tensor>& tensors,
                const char* settings = nullptr) {
  return {attn_run(job, tensors.data(), tensors.size(), settings), attn_result_free};
}

double element(const attn_result* result, std::size_t output, std::size_t at) {
  return static_cast<const double*>(attn_result_output(result, output)->data)[at];
}

}  // namespace

TEST_CASE("api: a job's outputs") {
  const TwoWords words;
  const OwnedResult result = run(R"({"outputs": ["weights", "context"]})", words.tensors());
  REQUIRE(attn_result_code(result.get()) == 0);
  REQUIRE(attn_result_count(result.get()) == 2);
  const attn_tensor* weights = attn_result_output(result.get(), 0);
  CHECK(std::string(weights->name) == "weights");
  CHECK(std::string(weights->dtype) == "float64");
  REQUIRE(weights->rank == 2);
  CHECK(weights->shape[0] == 2);
  CHECK(weights->strides == nullptr);
  const double first = 1 / (1 + std::exp(-1 / std::sqrt(2.0)));
  CHECK(element(result.get(), 0, 0) == Approx(first).epsilon(1e-14));
  CHECK(element(result.get(), 1, 0) == Approx(first * 1 + (1 - first) * 3).epsilon(1e-14));
  CHECK(attn_result_copied(result.get()) == 0);
  CHECK(attn_result_output(result.get(), 2) == nullptr);
}

TEST_CASE("api: tensors with strides are copied") {
  const TwoWords words;
  std::vector<attn_tensor> tensors = words.tensors();
  const std::array<std::ptrdiff_t, 2> columns{8, 16};
  tensors[2].strides = columns.data();
  const OwnedResult result = run(R"({"outputs": ["V"]})", tensors);
  REQUIRE(attn_result_code(result.get()) == 0);
  CHECK(element(result.get(), 0, 1) == 3);
  CHECK(element(result.get(), 0, 2) == 2);
  CHECK(attn_result_copied(result.get()) == 32);
}

TEST_CASE("api: tensors that are not aligned are copied") {
  const TwoWords words;
  std::vector<attn_tensor> tensors = words.tensors();
  std::vector<std::byte> bytes(sizeof words.v + 1);
  std::memcpy(bytes.data() + 1, words.v.data(), sizeof words.v);
  tensors[2].data = bytes.data() + 1;
  const OwnedResult result = run(R"({"outputs": ["V"]})", tensors);
  REQUIRE(attn_result_code(result.get()) == 0);
  CHECK(element(result.get(), 0, 3) == 4);
  CHECK(attn_result_copied(result.get()) == 32);
}

TEST_CASE("api: any byte but 0 is true") {
  const TwoWords words;
  std::vector<attn_tensor> tensors = words.tensors();
  const std::array<unsigned char, 4> bytes{2, 0, 0, 255};
  tensors.push_back({"mask", "bool", 2, words.shape.data(), nullptr, bytes.data()});
  const OwnedResult result = run(R"({"outputs": ["weights"]})", tensors);
  REQUIRE(attn_result_code(result.get()) == 0);
  CHECK(element(result.get(), 0, 0) == 1);
  CHECK(element(result.get(), 0, 3) == 1);
  CHECK(attn_result_copied(result.get()) == 4);
}

TEST_CASE("api: outputs do not share elements with inputs or each other") {
  TwoWords words;
  const OwnedResult result = run(R"({"outputs": ["queries", "Q", "values"]})", words.tensors());
  REQUIRE(attn_result_code(result.get()) == 0);
  words.q[0] = 77;
  auto* queries =
      static_cast<double*>(const_cast<void*>(attn_result_output(result.get(), 0)->data));
  CHECK(queries[0] == 1);
  queries[0] = 88;
  CHECK(element(result.get(), 1, 0) == 1);
  CHECK(words.q[0] == 77);
}

TEST_CASE("api: a taken output outlives its result") {
  const TwoWords words;
  OwnedResult result = run(R"({"outputs": ["weights", "context"]})", words.tensors());
  attn_tensor* const weights = attn_result_take(result.get());
  CHECK(attn_result_count(result.get()) == 1);
  CHECK(std::string(attn_result_output(result.get(), 0)->name) == "context");
  result.reset();
  CHECK(std::string(weights->name) == "weights");
  CHECK(static_cast<const double*>(weights->data)[0] > 0.5);
  attn_tensor_free(weights);
  attn_tensor_free(nullptr);
}

TEST_CASE("api: errors have the exit code and the message of the program") {
  const TwoWords words;
  const std::vector<attn_tensor> tensors = words.tensors();
  const auto fails = [&](const char* job, const std::vector<attn_tensor>& given,
                         const char* settings, int code, const std::string& text) {
    const OwnedResult result = run(job, given, settings);
    CHECK(attn_result_code(result.get()) == code);
    CHECK(std::string(attn_result_text(result.get())) == text);
    CHECK(attn_result_count(result.get()) == 0);
  };
  fails(R"({"caussal": true})", tensors, nullptr, 65,
        "unknown key 'caussal' (did you mean 'causal'?)");
  fails("{", tensors, nullptr, 65,
        "line 1, column 2: expected a key in double quotes or '}', found the end of the file");
  fails(R"({"Q": "missing.npy"})", {tensors[1]}, nullptr, 66,
        "Q: missing.npy: No such file or directory");
  fails(R"({"Q": [[1, 0]]})", tensors, nullptr, 65,
        "Q: given twice: another spelling of this key is also present");
  fails(nullptr, tensors, R"({"nan": "never"})", 2,
        R"(nan: expected allow, refuse or warn, found "never")");
  fails(nullptr, tensors, R"({"thread": 1})", 2,
        "settings: unknown setting 'thread' (did you mean 'threads'?)");
  fails(nullptr, tensors, R"({"max_memory": 10})", 65,
        "needs 736 bytes of memory, more than the limit of 10 bytes; max_memory raises the limit; "
        "outputs and rows reduce the memory");
  const OwnedResult none(attn_run(nullptr, nullptr, 2, nullptr), attn_result_free);
  CHECK(attn_result_code(none.get()) == 2);
  CHECK(std::string(attn_result_text(none.get())) == "expected 2 tensors, found NULL");
}

TEST_CASE("api: comparison with the recomputed job") {
  TwoWords words;
  const std::vector<attn_tensor> tensors = words.tensors();
  const OwnedResult context = run(R"({"outputs": ["context"]})", tensors);
  std::array<double, 4> out{};
  std::memcpy(out.data(), attn_result_output(context.get(), 0)->data, sizeof out);
  const attn_tensor given = words.tensor("", out);
  const auto compare = [&](const char* settings) {
    return OwnedResult(attn_compare(&given, 1, nullptr, tensors.data(), tensors.size(), settings),
                       attn_result_free);
  };
  CHECK(attn_result_code(compare(nullptr).get()) == 0);
  out[0] += 1e-3;
  const OwnedResult report = compare(nullptr);
  CHECK(attn_result_code(report.get()) == 1);
  CHECK_THAT(attn_result_text(report.get()), Catch::Contains("1 of 4 elements exceed"));
  CHECK_THAT(attn_result_json(report.get()), Catch::Contains("\"same\":false"));
  CHECK(attn_result_code(compare(R"({"atol": 0.01})").get()) == 0);
  CHECK(attn_result_code(compare(R"({"precision": "bf16"})").get()) == 0);
  CHECK(attn_result_code(compare(R"({"precision": "bf16", "rtol": 0.1})").get()) == 2);
  const attn_tensor misspelt = words.tensor("contxt", out);
  const OwnedResult refused(
      attn_compare(&misspelt, 1, nullptr, tensors.data(), tensors.size(), nullptr),
      attn_result_free);
  CHECK(attn_result_code(refused.get()) == 2);
  CHECK(attn_result_text(refused.get()) ==
        std::string("unknown output 'contxt' (did you mean 'context'?)"));
}

TEST_CASE("api: several threads at the same time") {
  const TwoWords words;
  const std::vector<attn_tensor> tensors = words.tensors();
  const OwnedResult expected = run(R"({"outputs": ["context"]})", tensors);
  const double first = element(expected.get(), 0, 0);
  std::array<int, 4> wrong{};
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const OwnedResult result =
            run(i % 2 == 0 ? R"({"outputs": ["context"]})" : R"({"heads": 3})", tensors);
        const bool is_right = i % 2 == 0 ? element(result.get(), 0, 0) == first
                                         : attn_result_code(result.get()) == 65;
        count += is_right ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("api: lack of memory is an error or no result", "[memory]") {
  const TwoWords words;
  const std::vector<attn_tensor> tensors = words.tensors();
  int code = 0;
  fail_each_allocation(
      [&] {
        const OwnedResult result = run(R"({"causal": true})", tensors);
        code = result ? attn_result_code(result.get()) : 65;
        if (code != 0) throw std::bad_alloc();
      },
      [&](bool succeeded) {
        if (!succeeded) CHECK(code == 65);
      });
}
