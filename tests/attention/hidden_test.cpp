// Hidden keys contribute nothing; visible ones reach the result, including NaN and infinity.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "attn/attention/attention.h"
#include "support/close.h"

using namespace attn;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

/// One query with the given scores of its keys, and the values of the keys.
TensorMap one_query(const std::vector<double>& scores, const std::vector<double>& values) {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({1, 1}, {1}));
  tensors.set("K", Tensor::of<double>({scores.size(), 1}, scores));
  tensors.set("V", Tensor::of<double>({values.size(), 1}, values));
  return tensors;
}

struct Row {
  std::vector<double> masked, weights;
  double logsumexp, context;
};

Row row_of(const TensorMap& tensors, const Options& options = {}) {
  const TensorMap results = attend({tensors, options}, {Output::masked_scores, Output::weights,
                                                        Output::logsumexp, Output::context});
  return {doubles_of(results.at("masked_scores")), doubles_of(results.at("weights")),
          doubles_of(results.at("logsumexp"))[0], doubles_of(results.at("context"))[0]};
}

bool all_nan(const std::vector<double>& values) {
  for (const double value : values)
    if (!std::isnan(value)) return false;
  return true;
}

}  // namespace

TEST_CASE("a hidden key contributes nothing even if its key and value are NaN or infinite") {
  for (const double poison : {kNaN, kInf, -kInf}) {
    TensorMap tensors = one_query({0, poison, 0}, {1, poison, 3});
    for (const Tensor& mask :
         {Tensor::of<bool>({3}, {true, false, true}), Tensor::of<std::int64_t>({1, 3}, {1, 0, 1}),
          Tensor::of<double>({3}, {0, -kInf, 0})}) {
      INFO(poison << " hidden by " << name_of(mask.dtype()));
      tensors.set("mask", mask);
      const Row row = row_of(tensors);
      CHECK(row.masked == std::vector<double>{0, -kInf, 0});
      CHECK(row.weights == std::vector<double>{0.5, 0, 0.5});
      CHECK(row.logsumexp == std::log(2.0));
      CHECK(row.context == 2);
    }
  }
}

TEST_CASE("a key hidden by causality alone contributes nothing") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<float>({2, 1}, {1, 1}));
  tensors.set("K", Tensor::of<float>({2, 1}, {0, 0}));
  tensors.set("V", Tensor::of<float>({2, 1}, {5, std::numeric_limits<float>::infinity()}));
  Options options;
  options.causal = true;
  const std::vector<double> context =
      doubles_of(attend({tensors, options}, {Output::context}).at("context"));
  CHECK(context == std::vector<double>{5, kInf});
}

TEST_CASE("a visible NaN reaches its own query and no other") {
  const Row score = row_of(one_query({0, kNaN, 0}, {1, 2, 3}));
  CHECK(all_nan(score.weights));
  CHECK(std::isnan(score.logsumexp));
  CHECK(std::isnan(score.context));
  const Row value = row_of(one_query({0, 0}, {1, kNaN}));
  CHECK(value.weights == std::vector<double>{0.5, 0.5});
  CHECK(std::isnan(value.context));

  TensorMap two = one_query({0, 1}, {1, 2});
  two.set("Q", Tensor::of<double>({2, 1}, {kNaN, 0}));
  const std::vector<double> context = doubles_of(attend({two}, {Output::context}).at("context"));
  CHECK(std::isnan(context[0]));
  CHECK(context[1] == 1.5);
}

TEST_CASE("hidden keys of a query with a visible NaN have zero weight") {
  TensorMap tensors = one_query({kNaN, 0, 0}, {1, 2, kNaN});
  tensors.set("mask", Tensor::of<bool>({3}, {true, true, false}));
  const Row row = row_of(tensors);
  CHECK(std::isnan(row.weights[0]));
  CHECK(std::isnan(row.weights[1]));
  CHECK(row.weights[2] == 0);
}

TEST_CASE("hidden keys have zero weight even if all visible scores are NaN or -inf") {
  for (const double score : {kNaN, -kInf}) {
    TensorMap tensors = one_query({score, 0}, {1, 2});
    tensors.set("mask", Tensor::of<bool>({2}, {true, false}));
    const Row row = row_of(tensors);
    CHECK(std::isnan(row.weights[0]));
    CHECK(row.weights[1] == 0);
  }
}

TEST_CASE("a hidden NaN changes no output of any head or group") {
  TensorMap tensors;
  const auto set = [&](const char* name, const Shape& shape, double step) {
    std::vector<double> values(element_count(shape));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(step * static_cast<double>(i));
    tensors.set(name, Tensor::of<double>(shape, values));
  };
  set("Q", {2, 4, 3, 2}, 0.7);
  set("K", {2, 2, 3, 2}, 1.3);
  set("V", {2, 2, 3, 5}, 2.1);
  tensors.set("mask", Tensor::of<bool>({3}, {true, false, true}));
  const Tensor clean = attend({tensors}, {Output::context}).at("context");
  for (const char* name : {"K", "V"}) {
    Tensor poisoned = tensors.at(name);
    const std::size_t width = poisoned.shape()[3];
    const auto values = poisoned.mutable_data<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i / width % 3 == 1) values[i] = kNaN;
    tensors.set(name, poisoned);
  }
  const Tensor context = attend({tensors}, {Output::context}).at("context");
  CHECK(difference(context, {clean.shape(), doubles_of(clean), 1e-15}) == "");
}

TEST_CASE("infinite visible scores give the results of NumPy") {
  const Row high = row_of(one_query({kInf, 0}, {1, 2}));  // inf - inf
  CHECK(std::isnan(high.weights[0]));
  CHECK(high.logsumexp == kInf);
  const Row low = row_of(one_query({-kInf, 0}, {1, 2}));  // has zero weight, but is visible
  CHECK(low.weights == std::vector<double>{0, 1});
  CHECK(low.context == 2);
  const Row lowest = row_of(one_query({-kInf, -kInf}, {1, 2}));
  CHECK(all_nan(lowest.weights));
  CHECK(lowest.logsumexp == -kInf);
}

TEST_CASE("a visible weight that underflows is still multiplied with its infinite value") {
  CHECK(std::isnan(row_of(one_query({0, -2000}, {1, kInf})).context));  // 0 * inf
  CHECK(row_of(one_query({0, -2000}, {1, 7})).context == 1);
}

TEST_CASE("a large negative mask is added and hides nothing") {
  TensorMap tensors = one_query({3, 5}, {1, 2});
  tensors.set("mask", Tensor::of<double>({2}, {-1e9, -1e9}));
  CHECK(row_of(tensors).masked == std::vector<double>{3 - 1e9, 5 - 1e9});
  CHECK(row_of(tensors).weights[1] == Approx(1 / (1 + std::exp(-2.0))));
}

TEST_CASE("a query without visible keys") {
  TensorMap tensors = one_query({1, 2, 3}, {10, 20, 60});
  tensors.set("mask", Tensor::of<bool>({1}, {false}));
  Options options;
  const Row zero = row_of(tensors, options);
  CHECK(zero.weights == std::vector<double>{0, 0, 0});
  CHECK(zero.context == 0);
  CHECK(zero.logsumexp == -kInf);
  options.empty_rows = EmptyRows::uniform;
  const Row uniform = row_of(tensors, options);
  CHECK(uniform.weights == std::vector<double>(3, 1.0 / 3));
  CHECK(uniform.context == Approx(30));
  CHECK(uniform.logsumexp == -kInf);
  options.empty_rows = EmptyRows::nan;
  const Row nan = row_of(tensors, options);
  CHECK(all_nan(nan.weights));
  CHECK(std::isnan(nan.context));
  CHECK(nan.logsumexp == -kInf);
}

TEST_CASE("a softmax over all scores is empty only if all are hidden") {
  TensorMap tensors = one_query({1, 1}, {10, 20});
  tensors.set("Q", Tensor::of<double>({2, 1}, {1, 1}));
  tensors.set("mask", Tensor::of<bool>({2, 1}, {true, false}));
  Options options;
  options.softmax_axis = SoftmaxAxis::all;
  options.empty_rows = EmptyRows::uniform;
  const TensorMap half = attend({tensors, options}, {Output::weights, Output::context});
  CHECK(doubles_of(half.at("weights")) == std::vector<double>{0.5, 0.5, 0, 0});
  CHECK(doubles_of(half.at("context")) == std::vector<double>{15, 0});
  tensors.set("mask", Tensor::of<bool>({1}, {false}));
  const Tensor none = attend({tensors, options}, {Output::weights}).at("weights");
  CHECK(doubles_of(none) == std::vector<double>(4, 0.25));
}

TEST_CASE("large scores do not overflow") {
  const Row row = row_of(one_query({1e308, 1e308, -1e308}, {1, 3, 5}));
  CHECK(row.weights == std::vector<double>{0.5, 0.5, 0});
  CHECK(row.logsumexp == 1e308);
  CHECK(row.context == 2);
}
