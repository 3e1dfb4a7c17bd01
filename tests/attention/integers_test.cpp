// Integers are exact up to the scores, or refused.
#include <catch2/catch.hpp>
#include <limits>

#include "attn/attention/attention.h"
#include "attn/attention/gemm.h"
#include "attn/base/error.h"
#include "support/close.h"

using namespace attn;

namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Tensor integers(const Shape& shape, const std::vector<std::int64_t>& values) {
  return Tensor::of<std::int64_t>(shape, values);
}

std::vector<std::int64_t> values_of(const Tensor& tensor) {
  const auto data = tensor.data<std::int64_t>();
  return {data.begin(), data.end()};
}

TensorMap query_and_key(const Tensor& Q, const Tensor& K) {
  TensorMap tensors;
  tensors.set("Q", Q);
  tensors.set("K", K);
  return tensors;
}

std::string error_of(const TensorMap& tensors, const std::vector<Request>& outputs) {
  try {
    attend({tensors}, outputs);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("integer scores are exact beyond the integers of double") {
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;
  const TensorMap results =
      attend({query_and_key(integers({1, 2}, {odd, 1}), integers({2, 2}, {1, 0, 1, 1}))},
             {Output::queries, Output::scores, Output::scaled_scores});
  CHECK(values_of(results.at("queries")) == std::vector<std::int64_t>{odd, 1});
  CHECK(values_of(results.at("scores")) == std::vector<std::int64_t>{odd, odd + 1});
  CHECK(results.at("scaled_scores").dtype() == DType::f64);
}

TEST_CASE("integer products are exact up to the limits of int64") {
  const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return values_of(
        matmul(integers({1, 2}, {a, b}), integers({1, 2}, {c, d}), Second::transposed, "x"))[0];
  };
  CHECK(product(kMax, 0, 1, 5) == kMax);
  CHECK(product(kMin, 0, 1, 5) == kMin);
  CHECK(product(kMax, 1, 2, -kMax) == kMax);  // partial sums may exceed int64
  CHECK(product(1 << 30, 3, 1 << 30, -2) == (std::int64_t{1} << 60) - 6);
  CHECK_THROWS_AS(product(kMax, 1, 1, 1), Error);
  CHECK_THROWS_AS(product(kMin, 0, -1, 0), Error);
  const Tensor four = integers({1, 4}, {kMin, kMin, kMin, kMin});  // 2^128: 0 in 128 bits
  CHECK_THROWS_AS(matmul(four, four, Second::transposed, "x"), Error);
}

TEST_CASE("an overflow is reported with its stage") {
  const std::string mends =
      ": expected integers within int64, found an overflow; give the tensors as floating-point "
      "numbers";
  CHECK(error_of(query_and_key(integers({1, 1}, {kMax}), integers({1, 1}, {2})),
                 {Output::scores}) == "scores" + mends);
  TensorMap projected;
  projected.set("embeddings", integers({1, 1}, {kMax}));
  projected.set("W_K", integers({1, 1}, {3}));
  CHECK(error_of(projected, {Output::keys}) == "keys" + mends);
  projected.set("W_K", integers({1, 1}, {1}));
  projected.set("b_K", integers({1}, {1}));
  CHECK(error_of(projected, {Output::keys}) == "keys" + mends);
  CHECK(values_of(attend({projected}, {Output::queries}).at("queries"))[0] == kMax);
}

TEST_CASE("unsigned integers beyond int64 are an error") {
  const Tensor big = Tensor::of<std::uint64_t>({1, 1}, {std::uint64_t{1} << 63});
  const std::string error = error_of(query_and_key(integers({1, 1}, {1}), big), {Output::scores});
  CHECK(error.starts_with("K: "));
  CHECK(error.find("9223372036854775808") != std::string::npos);
  const Tensor fits = Tensor::of<std::uint64_t>({1, 1}, {kMax});
  CHECK(values_of(attend({query_and_key(integers({1, 1}, {1}), fits)}, {Output::scores})
                      .at("scores"))[0] == kMax);
}

TEST_CASE("booleans are the integers 0 and 1") {
  const TensorMap tensors = query_and_key(Tensor::of<bool>({1, 2}, {true, true}),
                                          Tensor::of<std::uint8_t>({2, 2}, {200, 100, 1, 0}));
  CHECK(values_of(attend({tensors}, {Output::scores}).at("scores")) ==
        std::vector<std::int64_t>{300, 1});
}

TEST_CASE("integers are converted to the dtype of floats they are combined with") {
  const TensorMap results =
      attend({query_and_key(integers({1, 1}, {3}), Tensor::of<float>({1, 1}, {0.5f}))},
             {Output::queries, Output::scores, Output::weights});
  CHECK(results.at("queries").dtype() == DType::i64);
  CHECK(results.at("scores").dtype() == DType::f32);
  CHECK(doubles_of(results.at("scores"))[0] == 1.5);
  CHECK(results.at("weights").dtype() == DType::f32);
}
